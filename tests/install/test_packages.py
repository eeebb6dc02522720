"""The Debian packages: what they hold, what they depend on, and that the programs run from there."""
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from commands import run
from conftest import BUILD_DIR
from support import safetensors
from support.processes import Cli, Server

PACKAGES = ("sparsefw", "libsparsefw-dev")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Name -> .deb, made anew from the build folder."""
    folder = tmp_path_factory.mktemp("packages")
    run("cpack", "--config", BUILD_DIR / "CPackConfig.cmake", "-B", folder, cwd=folder)
    found = {run("dpkg-deb", "-f", path, "Package").strip(): path for path in folder.glob("*.deb")}
    assert sorted(found) == sorted(PACKAGES)
    return found


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory):
    """The runtime package alone, unpacked into an empty folder."""
    root = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", packages["sparsefw"], root)
    return root


def depends(package):
    """Package names of its Depends field."""
    field = run("dpkg-deb", "-f", package, "Depends")
    return {re.sub(r"[ (:].*", "", part.strip())
            for alternatives in field.split(",") for part in alternatives.split("|")}


def libraries(program):
    """The shared libraries that the program itself names, as files."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", program)))
    found = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", program)))
    missing = needed - set(found) - {"ld-linux-x86-64.so.2"}
    assert not missing, f"{program} needs {missing}"
    return {found[name] for name in needed if name in found}


def owner(library):
    """The Debian package of a file; /lib and /usr/lib are one folder."""
    real = os.path.realpath(library)
    for path in (library, real, real.removeprefix("/usr"), "/usr" + real):
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise AssertionError(f"no package owns {library}")


def provided(package):
    """The package and its other names: libspdlog1.10 is also libspdlog1.10-fmt9."""
    field = run("dpkg-query", "-W", "-f", "${Provides}", package)
    return {package} | {re.sub(r"[ (].*", "", part.strip()) for part in field.split(",")} - {""}


def alternatives(package):
    """Packages of which it needs one: libopenblas0 stands for libopenblas0-pthread, -openmp, ..."""
    field = run("dpkg-query", "-W", "-f", "${Depends}", package)
    return {re.sub(r"[ (:].*", "", part.strip())
            for choice in field.split(",") if "|" in choice for part in choice.split("|")}


def test_files(packages, root):
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files >= {"usr/bin/sparsefw-server", "usr/bin/sparsefw-cli",
                     "usr/lib/systemd/system/sparsefw-server.service", "etc/sparsefw/server.conf",
                     "usr/share/bash-completion/completions/sparsefw-cli",
                     "usr/share/zsh/vendor-completions/_sparsefw",
                     "usr/share/fish/vendor_completions.d/sparsefw-cli.fish",
                     "usr/share/sparsefw/completion/words",
                     "usr/share/sparsefw/prometheus/prometheus.yml",
                     "usr/share/sparsefw/prometheus/alerts.yml",
                     "usr/share/sparsefw/grafana/sparsefw.json",
                     "usr/share/sparsefw/backup/sparsefw-backup",
                     "usr/share/sparsefw/backup/sparsefw-backup.timer",
                     "usr/share/doc/sparsefw/docs/runbook.md", "usr/share/doc/sparsefw/copyright", "usr/share/doc/sparsefw/changelog.gz"}
    assert ("usr/lib/sparsefw/libsparsefw_cuda.so" in files) == \
        (BUILD_DIR / "bin/libsparsefw_cuda.so").exists()
    dev = run("dpkg-deb", "-c", packages["libsparsefw-dev"])
    for name in ("usr/include/sparsefw/solver.h", "usr/include/sparsefw/client/client.h",
                 "usr/include/sparsefw/v1/job.pb.h", "/libsparsefw_core.a",
                 "/cmake/SparseFW/SparseFWConfig.cmake"):
        assert name in dev
    assert "usr/bin/" not in dev


def test_depends_names_every_library(packages, root):
    named = depends(packages["sparsefw"])
    for package in list(named):
        named |= alternatives(package)
    for program in ("sparsefw-server", "sparsefw-cli"):
        for library in libraries(root / "usr/bin" / program):
            package = owner(library)
            assert provided(package) & named, f"{program} needs {library} of {package}"


def test_dev_depends_on_what_its_cmake_package_looks_for(packages):
    assert depends(packages["libsparsefw-dev"]) >= {
        "libabsl-dev", "libgrpc++-dev", "libhwy-dev", "libisal-dev", "libopenblas-dev",
        "libprotobuf-dev", "libtbb-dev"}


def test_unit(root):
    unit = (root / "usr/lib/systemd/system/sparsefw-server.service").read_text()
    start = re.search(r"^ExecStart=(\S+) --config (\S+)$", unit, re.M)
    assert start and all((root / path.lstrip("/")).exists() for path in start.groups())
    if shutil.which("systemd-analyze"):
        copy = root / "sparsefw-server.service"
        copy.write_text(unit.replace(start[1], str(root / start[1].lstrip("/"))))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy],
                              capture_output=True, text=True)
        assert done.returncode == 0 and str(copy) not in done.stderr, done.stderr


def test_server_and_cli_run_from_the_unpacked_root(root, tmp_path):
    random = np.random.default_rng(1)
    activations = random.standard_normal((100, 32)).astype(np.float32)
    safetensors.write(tmp_path / "layer.safetensors", {
        "weight": random.standard_normal((24, 32)).astype(np.float32),
        "gram": activations.T @ activations})
    layer = tmp_path / "layer.safetensors"
    server = Server(tmp_path, "--config", root / "etc/sparsefw/server.conf",
                    program=root / "usr/bin/sparsefw-server")
    try:
        cli = Cli(server.address, program=root / "usr/bin/sparsefw-cli")
        result = cli.run("submit", "--weights", f"{layer}:weight", "--gram", f"{layer}:gram",
                         "--pattern", "2:4", "--iterations", "20", "--json",
                         "--out", tmp_path / "mask.safetensors").expect(0).json()
        assert result["kept"] == 24 * 16
        assert (tmp_path / "mask.safetensors").exists()
        assert server.stop() == 0
    finally:
        server.close()

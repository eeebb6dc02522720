"""Both wheels in an empty environment: no gRPC, no BLAS of the machine."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.processes import BIN_DIR, FAKE_CUDA

ROOT = Path(__file__).resolve().parents[3]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """(sparsefw, sparsefw_server), the latter with a module that stands for the CUDA module."""
    folder = tmp_path_factory.mktemp("wheels")
    programs = tmp_path_factory.mktemp("bin")
    for name in ("sparsefw-server", "sparsefw-cli"):
        (programs / name).symlink_to(BIN_DIR / name)
    if FAKE_CUDA.exists():
        (programs / "libsparsefw_cuda.so").symlink_to(FAKE_CUDA)
    run(ROOT / "client/python-server/make-wheel", sys.executable, programs, folder)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT / "client/python")
    (client,) = folder.glob("sparsefw-*.whl")
    (server,) = folder.glob("sparsefw_server-*.whl")
    return client, server


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(Path(os.path.realpath(sys.executable)), "-m", "venv", folder)
    command = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               "--no-compile", *wheels]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if "No matching distribution found for" in done.stderr and "from versions: none" in done.stderr:
        pytest.skip("PyPI cannot be reached")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def clean(environment, tmp_path):
    """Nothing of this machine but its C library."""
    return {"HOME": str(tmp_path), "PATH": f"{environment}/bin", "LD_LIBRARY_PATH": "",
            "SPARSEFW_CUDA_MODULE": "none"}


PROGRAM = """
import json, pathlib
import numpy as np
import sparsefw

random = np.random.default_rng(3)
weight = random.standard_normal((32, 48)).astype(np.float32)
with sparsefw.connect("auto") as client:
    result = client.prune(weight, activations=random.standard_normal((300, 48)).astype(np.float32),
                          sparsity=0.6, iterations=50, swaps=True)
    guard = client.server._guard.pid
    (server,) = pathlib.Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    maps = pathlib.Path(f"/proc/{server}/maps").read_text().splitlines()
    files = sorted({line.split(None, 5)[5] for line in maps if "/" in line and " r-xp " in line})
assert (result.mask.sum(axis=1) == 48 - int(48 * 0.6)).all()
assert result.losses.final < result.losses.warm_start
print(json.dumps(files))
"""


def test_a_layer_is_pruned_with_nothing_else(environment, clean, tmp_path):
    out = run(environment / "bin/python", "-c", PROGRAM, env=clean, cwd=tmp_path)
    files = json.loads(out)
    foreign = [name for name in files if not name.startswith((str(environment), "["))]
    # The machine has the C library and what comes with the compiler, as manylinux allows.
    allowed = ("libc.so", "libm.so", "ld-linux", "libstdc++", "libgcc_s", "libdl", "libpthread", "librt",
               "libresolv", "libnss", "libz.so")
    assert all(Path(name).name.startswith(allowed) for name in foreign), foreign
    assert any("openblas" in name for name in files)


def test_the_example_of_the_readme(environment, clean):
    section = (ROOT / "README.md").read_text().split("<!-- python-layer -->\n```python\n")[1]
    program = section.split("```")[0]
    printed = section.split("It prints `")[1].split("`")[0]
    assert run(environment / "bin/python", "-c", program, env=clean, cwd=ROOT).strip() == printed


def test_the_programs_are_on_the_path(environment, clean):
    for program in ("sparsefw", "sparsefw-server", "sparsefw-cli"):
        assert "usage" in run(environment / "bin" / program, "--help", env=clean).lower()
    assert "--state-dir" in run(environment / "bin/sparsefw", "serve", "--help", env=clean)


def test_what_is_in_the_wheels(wheels):
    client, server = (zipfile.ZipFile(wheel).namelist() for wheel in wheels)
    assert wheels[1].name.endswith("_x86_64.whl")
    assert "-manylinux_2_3" in wheels[1].name
    assert "sparsefw/py.typed" in client
    assert "sparsefw/v1/job_pb2.pyi" in client
    assert any(name.endswith("licenses/LICENSE") for name in client)
    assert any(name.endswith("licenses/LICENSE") for name in server)
    assert not [name for name in client if "__pycache__" in name or name.startswith("tests")]
    # Every library has the copyright file of its package.
    licenses = " ".join(name for name in server if "/licenses/" in name)
    for package in ("grpc", "protobuf", "openblas", "gfortran", "absl", "lzma", "ssl", "tbb", "sqlite"):
        assert package in licenses, package


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="build/tests/libsparsefw_fake_cuda.so is not built")
def test_a_cuda_module_is_found_beside_the_program(environment, clean):
    program = """
import sparsefw
with sparsefw.connect("auto") as client:
    info = client.info()
    print(*(device.name for device in info.devices), info.default_device_reason)
"""
    out = run(environment / "bin/python", "-c", program, env={**clean, "SPARSEFW_CUDA_MODULE": ""})
    assert "cuda" not in out
    del clean["SPARSEFW_CUDA_MODULE"]
    out = run(environment / "bin/python", "-c", program, env=clean)
    assert "cuda:0" in out.split()

"""Another project builds and runs against the installed tree (tests/consumer)."""
import re

import pytest

from commands import run
from conftest import BUILD_DIR, SOURCE_DIR
from support.processes import Cli, Server


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    for component in ("runtime", "dev"):
        run("cmake", "--install", BUILD_DIR, "--prefix", prefix, "--component", component)
    return prefix


@pytest.fixture(scope="module")
def consumer(prefix, tmp_path_factory):
    """The build folder of the consumer."""
    folder = tmp_path_factory.mktemp("consumer")
    run("cmake", "-S", SOURCE_DIR / "tests/consumer", "-B", folder, "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release",
        f"-DEXAMPLE={SOURCE_DIR / 'client/cpp/examples/prune_layer.cc'}")
    run("cmake", "--build", folder)
    return folder


def test_nothing_installed_names_the_source_or_build_folder(prefix):
    for path in [*prefix.rglob("*.cmake"), *prefix.rglob("*.service"), *prefix.rglob("*.conf")]:
        assert str(SOURCE_DIR) not in path.read_text(), path


def test_public_headers_include_only_what_is_installed(prefix):
    headers = list((prefix / "include").rglob("*.h"))
    assert len(headers) > 20
    for header in headers:
        for name in re.findall(r'#include [<"](sparsefw/[^>"]+|core/[^>"]+)', header.read_text()):
            assert (prefix / "include" / name).exists(), f"{header} includes {name}"


def test_core(consumer):
    words = run(consumer / "solve_layer").split()
    assert words[:2] == ["kept", str(48 * 32)]
    loss, warm, bound = float(words[3]), float(words[6]), float(words[9])
    assert 0 <= bound <= loss <= warm


def test_client_against_the_installed_server(prefix, consumer, tmp_path):
    server = Server(tmp_path, program=prefix / "bin/sparsefw-server")
    try:
        out = run(consumer / "prune_layer", server.address)
        assert re.match(r"jobs/\S+ kept 4992 weights, loss ", out), out
        assert Cli(server.address, program=prefix / "bin/sparsefw-cli").run("list").code == 0
        assert server.stop() == 0
    finally:
        server.close()

"""Fixtures of every suite that starts the real server: a conftest.py imports what it needs."""
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    """A new folder that every user may read."""
    path = Path(tempfile.mkdtemp(prefix="sparsefw-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_server(folder):
    """start_server(*flags, env={}) -> Server; all are ended after the test."""
    from support.processes import Server
    servers = []

    def start(*flags, **options):
        path = folder / f"server{len(servers)}"
        path.mkdir()
        servers.append(Server(path, *flags, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
        server.expect_no_crash()

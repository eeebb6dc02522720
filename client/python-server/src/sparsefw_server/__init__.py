"""The programs of the SparseFW pruning server."""

import os
import sys
from pathlib import Path


def program(name="sparsefw-server"):
    """The path of "sparsefw-server" or "sparsefw-cli"."""
    path = Path(__file__).with_name("bin") / name
    if not path.is_file():
        raise FileNotFoundError(str(path))
    return str(path)


def _run(name):
    path = program(name)
    os.execv(path, [path, *sys.argv[1:]])


def run_server():
    _run("sparsefw-server")


def run_cli():
    _run("sparsefw-cli")

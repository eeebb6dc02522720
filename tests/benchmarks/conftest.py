"""The packages are core/benchmarks' own; the programs come from the build folder."""
import os
import stat
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "core/benchmarks"))
sys.path.append(str(ROOT / "tests/integration"))  # support.processes alone: no gRPC is needed here


@pytest.fixture(scope="session")
def bin_folder():
    return Path(os.environ.get("SPARSEFW_BIN_DIR", ROOT / "build/bin"))


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Items(list):
    """What is reported: [(name, ok, detail)]."""

    def __call__(self, name, ok, detail="", **_):
        self.append((name, ok, detail))

    def wrong(self):
        return [f"{name}: {detail}" for name, ok, detail in self if ok is False]


@pytest.fixture
def items():
    return Items()

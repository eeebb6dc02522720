"""The packages are core/benchmarks' own; the programs come from the build folder."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "core/benchmarks"))


@pytest.fixture(scope="session")
def bin_folder():
    return Path(os.environ.get("SPARSEFW_BIN_DIR", ROOT / "build/bin"))

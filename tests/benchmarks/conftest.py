"""The packages are core/benchmarks' own; the programs come from the build folder."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "core/benchmarks"))
sys.path.append(str(ROOT / "tests/integration"))  # support.processes alone: no gRPC is needed here


@pytest.fixture(scope="session")
def bin_folder():
    return Path(os.environ.get("SPARSEFW_BIN_DIR", ROOT / "build/bin"))

"""Where the programs and the generated Python modules are; import it first."""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN_DIR = Path(os.environ.setdefault("SPARSEFW_BIN_DIR", str(ROOT / "build/bin")))
STUBS_DIR = os.environ.get("SPARSEFW_STUBS_DIR", str(BIN_DIR.parent / "tests/integration/stubs"))
sys.path[:0] = [str(ROOT / "tests/integration"), STUBS_DIR]

"""Tests of deploy/: rules, alerts and the dashboard against a live server, and commands of the
documents. ctest sets SPARSEFW_BIN_DIR and SPARSEFW_STUBS_DIR, as for tests/integration."""
import os
import sys
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parents[2]
os.environ.setdefault("SPARSEFW_BIN_DIR", str(SOURCE_DIR / "build/bin"))
STUBS = Path(os.environ.get("SPARSEFW_STUBS_DIR", SOURCE_DIR / "build/tests/integration/stubs"))
sys.path[:0] = [str(Path(__file__).resolve().parent), str(SOURCE_DIR / "tests/integration"),
                str(SOURCE_DIR / "deploy/grafana"), str(STUBS.resolve())]

"""Tests of what `cmake --install` and script/package make. ctest sets SPARSEFW_BIN_DIR; the build
folder above it is what is installed."""
import os
import sys
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parents[2]
BUILD_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", SOURCE_DIR / "build/bin")).resolve().parent
sys.path[:0] = [str(Path(__file__).resolve().parent), str(SOURCE_DIR / "tests/integration")]

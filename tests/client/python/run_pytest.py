"""Runs tests with the Python of a virtual environment: run_pytest.py [--hf] ENVIRONMENT FILE ...

Exit code 77 where the environment could not be made, or, with --hf, has no PyTorch.
"""
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "integration"))
from support.processes import HANG  # noqa: E402

hf = sys.argv[1] == "--hf"
environment, *files = sys.argv[2 if hf else 1:]
if not os.path.exists(os.path.join(environment, "stamp")):
    print(f"skipped: {environment} could not be made: PyPI cannot be reached")
    sys.exit(77)
if hf and not os.path.exists(os.path.join(environment, "stamp-hf")):
    print(f"skipped: {environment} has no PyTorch: client/python/make-environment --hf {environment}")
    sys.exit(77)
python = os.path.join(environment, "bin/python")
os.execv(python, [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--timeout={2 * HANG:g}", *files])

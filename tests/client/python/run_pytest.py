"""Runs tests with the Python of a virtual environment: run_pytest.py [--hf | --peers] ENVIRONMENT FILE ...

Exit code 77 where the environment could not be made, or has not what --hf or --peers of make-environment installs.
"""
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "integration"))
from support.processes import HANG  # noqa: E402

MADE_BY = {"hf": "client/python/make-environment --hf", "peers": "client/python/make-environment --peers"}
more = sys.argv[1].removeprefix("--") if sys.argv[1].startswith("--") else ""
environment, *files = sys.argv[2 if more else 1:]
if more and not os.path.exists(os.path.join(environment, f"stamp-{more}")):
    print(f"skipped: {environment} has not all that these tests need: {MADE_BY[more]} {environment}")
    sys.exit(77)
if not os.path.exists(os.path.join(environment, "stamp")):
    print(f"skipped: {environment} could not be made: PyPI cannot be reached")
    sys.exit(77)
python = os.path.join(environment, "bin/python")
os.execv(python, [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--timeout={2 * HANG:g}", *files])

"""Runs tests with the Python of a virtual environment: run_pytest.py ENVIRONMENT FILE ...

Exit code 77 where the environment could not be made.
"""
import os
import sys

environment, *files = sys.argv[1:]
if not os.path.exists(os.path.join(environment, "stamp")):
    print(f"skipped: {environment} could not be made: PyPI cannot be reached")
    sys.exit(77)
python = os.path.join(environment, "bin/python")
os.execv(python, [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--timeout=120", *files])

"""Finds, or makes, a Python that has PyTorch and Matplotlib."""
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "peers" / "requirements.txt"


def has(python, module):
    try:
        done = subprocess.run([str(python), "-c", f"import {module}"], capture_output=True,
                              check=False)
    except OSError:
        return False
    return done.returncode == 0


def candidates(root):
    named = os.environ.get("SPARSEFW_BENCH_PYTHON")
    if named:
        return [named]
    return [Path(root) / "build/bench-venv/bin/python", sys.executable]


def _install(root, log):
    """PyTorch from PyPI into build/bench-venv; returns None, or why not."""
    folder = Path(root) / "build/bench-venv"
    log(f"installing {REQUIREMENTS.name} into {folder} (several GB, once)")
    steps = [[sys.executable, "-m", "venv", str(folder)],
             [str(folder / "bin/pip"), "--disable-pip-version-check", "-q", "install", "-r",
              str(REQUIREMENTS)]]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=1200)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            return f"{Path(step[0]).name}: {lines[-1]}"
    return None


def find(root, module, install, log):
    """(python, None) or (None, why there is none)."""
    for python in candidates(root):
        if has(python, module):
            return python, None
    reason = f"no Python here can import {module}"
    if not install or os.environ.get("SPARSEFW_BENCH_PYTHON"):
        return None, reason
    failure = _install(root, log)
    python = candidates(root)[0]
    if failure is None and has(python, module):
        return python, None
    return None, f"{reason}; installing it failed: {failure or 'it cannot be imported'}"

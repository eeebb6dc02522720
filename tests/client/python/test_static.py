"""Types, style, generated modules, versions."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparsefw

PACKAGE = Path(__file__).resolve().parents[3] / "client/python"


def run(*command, cwd=PACKAGE):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False)


def test_mypy_strict():
    pytest.importorskip("mypy", reason="mypy is not installed")
    done = run(sys.executable, "-m", "mypy", "--cache-dir", PACKAGE.parents[1] / "build/mypy")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("call", "words"), [
    ("prune_model('m', data='t', sparsity=0.5, alpha=0.5, job_device='cpu', max_seq_length=64)", None),
    ("prune_model('m', data='t', sparsity=0.5, alhpa=0.5)", 'Unexpected keyword argument "alhpa"'),
    ("prune_model('m', data='t', sparsity=0.5, swaps='yes')", 'Argument "swaps"'),
])
def test_options_of_models_have_types(folder, call, words):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (folder / "user.py").write_text(f"from sparsefw.hf import prune_model\n{call}\n")
    done = run(sys.executable, "-m", "mypy", "--cache-dir", PACKAGE.parents[1] / "build/mypy", folder / "user.py")
    assert (done.returncode == 0) == (words is None), done.stdout
    assert words is None or words in done.stdout


def test_ruff():
    pytest.importorskip("ruff", reason="ruff is not installed")
    done = run(sys.executable, "-m", "ruff", "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout
    done = run(sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "src")
    assert done.returncode == 0, done.stdout


def test_generated_modules_are_up_to_date(tmp_path):
    if not shutil.which("grpc_python_plugin") or "3.21." not in run("protoc", "--version").stdout:
        pytest.skip("needs Debian's protoc 3.21")
    done = run("./generate-stubs", tmp_path)
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text() for path in (tmp_path / "sparsefw/v1").iterdir()}
    there = {path.name: path.read_text() for path in (PACKAGE / "src/sparsefw/v1").glob("*_pb2*")}
    assert made == there, "run client/python/generate-stubs"


def test_there_is_one_version():
    project = (PACKAGE.parents[1] / "CMakeLists.txt").read_text()
    version = re.search(r"project\(sparsefw VERSION (\S+)", project)[1]
    assert sparsefw.__version__ == version
    for folder in ("python", "python-server"):
        text = (PACKAGE.parent / folder / "pyproject.toml").read_text()
        assert f'version = "{version}"' in text, folder
    assert importlib.metadata.version("sparsefw") == version

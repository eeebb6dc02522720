"""docs/tutorial-model.md and README: their commands and code for a model run as they stand there, on a tiny one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import BIN_DIR, clean_environment
from test_hub import tokenizer
from test_own_data_page import PROGRAM
from tiny import make

ROOT = Path(__file__).resolve().parents[4]
TUTORIAL = (ROOT / "docs/tutorial-model.md").read_text()
README = (ROOT / "README.md").read_text()


@pytest.fixture
def run(folder):
    """run(code, kind) -> what it printed, in a folder with model/, text.txt and held-out.txt."""
    make("llama", max_position_embeddings=4096).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    (folder / "text.txt").write_text(" ".join(f"w{number * number % 120}" for number in range(9000)))
    (folder / "held-out.txt").write_text(" ".join(f"w{number * 7 % 113}" for number in range(5000)))
    (folder / "bin").mkdir()
    (folder / "bin/sparsefw").write_text(PROGRAM)
    (folder / "bin/sparsefw").chmod(0o755)
    environment = {
        **clean_environment(), "PATH": f"{folder}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1",
        "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")}

    def run(code, kind):
        words = [sys.executable, "-c", code] if kind == "python" else ["bash", "-euc", code]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_tutorial(run, folder):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", TUTORIAL, re.M | re.S)
    # Installing and downloading are not for a test.
    blocks = [(kind, code) for kind, code in blocks if not code.startswith(("script/", "hf download"))]
    assert [kind for kind, _ in blocks] == ["", "python", "", "python"]
    printed = [run(code, kind) for kind, code in blocks]
    assert (folder / "pruned/sparsefw.json").exists()
    assert printed[2].count("perplexity ") == 2
    assert len(set(re.findall(r"perplexity ([\d.]+)", printed[2]))) == 2, "the pruned model is the dense one"


def test_the_model_of_the_readme(run, folder):
    code = README.split("<!-- python-model -->\n```python\n")[1].split("```")[0]
    assert float(run(code, "python").splitlines()[-1]) > 1
    [command] = re.findall(r"^sparsefw prune-model .*$", README, re.M)
    # The same call: what is done is not done again.
    run(command, "")
    assert (folder / "pruned/sparsefw.json").exists()

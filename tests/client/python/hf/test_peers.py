"""A run of script/reproduce peers on a tiny model, through each tool; llm-compressor's environment is made by
that script alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import test_programs
import tiny
from support.processes import BIN_DIR

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "client/python/benchmarks/reproduce"
PEER_PYTHON = ROOT / "build/venv-peers/bin/python"


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("sparsefw", {"method": "wanda", "pattern": "2:4"}),
        ("llm-compressor", {"modifier": "WandaPruningModifier", "sparsity": 0.5, "mask_structure": "2:4"}),
    ],
)
def test_a_tool_prunes_the_model_and_says_what_it_took(folder, monkeypatch, tool, options):
    python = sys.executable if tool == "sparsefw" else PEER_PYTHON
    if not os.access(python, os.X_OK):
        pytest.skip("build/venv-peers is not there: script/reproduce peers makes it")
    tiny.make("llama").save_pretrained(folder / "dense")
    test_programs.tokenizer().save_pretrained(folder / "dense")  # llm-compressor asks for one
    (folder / "ids.json").write_text(json.dumps(tiny.tokens().tolist()))
    (folder / "options.json").write_text(json.dumps(options))
    done = subprocess.run(
        [python, FOLDER / "peer_process.py", tool, folder / "dense", folder / "ids.json", folder / "options.json",
         folder / "out"], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "client/python/src"),
             "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")})
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["threads"] == 1
    assert found["cpu_seconds"] > 0
    assert found["peak_bytes"] >= found["server_peak_bytes"]
    assert bool(found["server_peak_bytes"]) == (tool == "sparsefw")
    monkeypatch.syspath_prepend(str(FOLDER))
    import peers

    assert peers.removed(folder / "out") == {"share": 0.5, "rows": [0.5, 0.5], "two_of_four": True}
    assert peers.removed(folder / "dense") == {"share": 0, "rows": [0, 0], "two_of_four": False}

"""docs/own-data.md: its code runs as it stands, in the order of the page. So does README's forward hook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.processes import BIN_DIR, clean_environment

ROOT = Path(__file__).resolve().parents[4]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.M | re.S)
# `sparsefw`, where the package is not installed.
PROGRAM = f"""#!/bin/sh
exec {sys.executable} -m sparsefw "$@"
"""


@pytest.fixture
def environment(folder):
    (folder / "bin").mkdir()
    program = folder / "bin/sparsefw"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return {**clean_environment(), "PATH": f"{folder}/bin:{BIN_DIR}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
            "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")}


def test_the_code_of_the_page(shared_server, folder, environment, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    for name in ("SPARSEFW_SERVER_PROGRAM", "PATH"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setenv("SPARSEFW_SERVER", shared_server.address)
    blocks = BLOCK.findall((ROOT / "docs/own-data.md").read_text())
    assert [kind for kind, _ in blocks].count("python") == 6
    assert [kind for kind, _ in blocks].count("sh") == 1
    variables = {}
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, "own-data.md", "exec"), variables)
            continue
        done = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, check=False,
                              env={**environment, "SPARSEFW_SERVER": shared_server.address})
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
    zeros = (variables["layer"].weight == 0).float().mean(dim=1)
    assert (zeros >= int(0.6 * 128) / 128).all()
    assert "loss" in capfd.readouterr().out


def test_the_forward_hook_of_the_readme(folder, environment):
    program = (ROOT / "README.md").read_text().split("<!-- python-hook -->\n```python\n")[1].split("```")[0]
    assert len(program.strip().splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder,
                          env=environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^loss +[\d.]+ %", done.stdout) and "warning" not in done.stderr.lower()


def test_files_of_torch_save(shared_server, folder, environment):
    weight, x = torch.randn(8, 16, dtype=torch.bfloat16), torch.randn(2, 40, 16)
    torch.save({"layer.weight": weight, "step": 3}, folder / "w.pt")
    torch.save(x, folder / "x.pt")
    torch.save({"layer.weight": weight}, folder / "old.pt", _use_new_zipfile_serialization=False)

    def run(*words):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd=folder,
                              env={**environment, "SPARSEFW_SERVER": shared_server.address})

    masks = []
    for weights in ("w.pt:layer.weight", "w.pt", "old.pt"):
        done = run("sparsefw", "prune", "-q", "--weights", weights, "--activations", "x.pt", "--sparsity", "0.5",
                   "--method", "wanda", "--out", "m.safetensors", "--out-weights", "p.safetensors", "--overwrite")
        assert done.returncode == 0, done.stderr
        masks.append(load_file(folder / "m.safetensors")["mask"])
        pruned = load_file(folder / "p.safetensors")["layer.weight"]
        assert torch.equal(pruned, torch.where(masks[0], weight, 0))
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])
    assert 'there is no tensor "y"; it holds "layer.weight"' in run(
        "sparsefw", "prune", "--weights", "w.pt:y", "--gram", "x.pt", "--out", "m").stderr
    # The other program names the line that converts it.
    for name in ("old.pt", "x.pt"):
        refused = run("sparsefw-cli", "gram", "--activations", name, "--out", "g.safetensors")
        assert refused.returncode == 2
        line = refused.stderr.split("convert it: ")[1]
        converted = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False, env={
            **environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"})
        assert converted.returncode == 0, converted.stderr
    assert torch.equal(load_file(folder / "x.safetensors")["x"], x)
    done = run("sparsefw-cli", "submit", "--weights", "old.safetensors", "--activations", "x.safetensors", "--method",
               "wanda", "--pattern", "per-row", "--sparsity", "0.5", "--out", "m.safetensors", "--overwrite")
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(folder / "m.safetensors")["mask"], masks[0])

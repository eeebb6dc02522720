"""docs/llm-compressor.md: its recipes run as they stand."""

import re
from pathlib import Path

import datasets
import oneshots
import pytest
import tiny
from support.processes import BIN_DIR

PAGE = Path(__file__).resolve().parents[4] / "docs/llm-compressor.md"
BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```$", re.M | re.S)


@pytest.fixture
def blocks():
    found = dict(BLOCK.findall(PAGE.read_text()))
    assert sorted(found) == ["python", "yaml"]
    return found


def test_the_recipes_of_the_page(folder, monkeypatch, capsys, blocks):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", str(BIN_DIR / "sparsefw-server"))
    oneshots.save("model")
    variables = {"samples": datasets.Dataset.from_dict({"input_ids": oneshots.ids()})}
    exec(compile(blocks["python"], PAGE.name, "exec"), variables)
    assert "mlp.down_proj" in capsys.readouterr().out
    assert variables["modifier"].report.sparsity == pytest.approx(0.6, abs=0.02)
    pruned = oneshots.load("pruned")
    assert float((tiny.matrix(pruned, "model.layers.1.mlp.up_proj.weight") == 0).float().mean()) > 0.5

    Path("recipe.yaml").write_text(blocks["yaml"])
    model = oneshots.load("model")
    oneshots.oneshot(model, "recipe.yaml")
    zeros = tiny.matrix(model, "model.layers.1.mlp.up_proj.weight") == 0
    assert (zeros.reshape(-1, 4).sum(1) == 2).all()

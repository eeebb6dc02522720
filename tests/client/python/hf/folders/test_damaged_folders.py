"""Model folders with damaged, doubled or missing files: what is read, and what is said before any work."""

import pytest
import tiny
from sparsefw.hf import prune_model

OPTIONS = {"sparsity": 0.5, "method": "wanda", "data": tiny.tokens(), "progress": False}


@pytest.fixture
def dense(folder):
    """The folder of a model, beside a text."""
    tiny.make("llama").save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(" ".join(f"w{i * i % 97}" for i in range(400)))
    return folder / "dense"


@pytest.mark.parametrize(
    "text", ["# Modèle\n".encode("latin-1"), "# Modell ü\n".encode("utf-16"), "# Modèle\n".encode()],
    ids=["latin-1", "utf-16", "utf-8"])
def test_a_card_in_any_encoding_keeps_its_bytes(client, dense, folder, text):
    (dense / "README.md").write_bytes(text)
    prune_model(dense, out=folder / "out", server=client, **OPTIONS)
    card = (folder / "out/README.md").read_bytes()
    assert card.startswith(text.rstrip()) and card.count(b"## Pruning") == 1

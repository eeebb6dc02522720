"""What a caller has set around a run: autocast, a default device, caches of the GPU's memory."""

import tiny
import torch
from sparsefw.hf import BlockRefinement, prune_model
from sparsefw.hf.training import distill

REFINE = BlockRefinement(epochs=4, learning_rate=1e-2)


def test_autocast_of_the_caller_keeps_no_dense_weights(client):
    """Within autocast PyTorch would go on with converted weights from before they were pruned."""
    with torch.autocast("cpu", torch.bfloat16):
        report = prune_model(
            tiny.make("llama"), data=tiny.tokens(count=12), server=client, sparsity=0.5, method="wanda",
            progress=False, refine_blocks=REFINE)
        assert torch.is_autocast_cache_enabled()
    for record in report.refinements:
        assert record["error_before"] > 0.01
        assert record["epoch"] > 0


def test_a_default_device_is_not_that_of_calibration(client):
    """Sequences, Gram matrices and orders of sequences stay on the CPU."""
    plain, other = tiny.make("llama"), tiny.make("llama")
    options = {"data": tiny.tokens(count=12), "server": client, "sparsity": 0.5, "method": "wanda", "progress": False,
               "refine_blocks": REFINE}
    prune_model(plain, **options)
    with torch.device("meta"):
        prune_model(other, **options)
    assert tiny.same(plain, other)


def test_memory_that_pytorch_keeps_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert distill._free(torch.device("cuda")) == 45

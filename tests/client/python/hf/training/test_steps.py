"""What steps of training multiply in."""

import pytest
import torch
from sparsefw.hf.training import steps


@pytest.mark.parametrize(
    ("there", "half"),
    [({"amx_bf16": True}, True), ({"amx_bf16": False, "avx512_bf16": True}, True), ({"avx512_f": True}, False)])
def test_products_are_bfloat16_where_the_processor_multiplies_them(monkeypatch, there, half):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there, raising=False)
    steps.multiplies_bfloat16.cache_clear()
    try:
        assert steps.multiplies_bfloat16("cpu") is half
        module = torch.nn.Linear(8, 8)
        training = steps.Training(module, ["weight"], steps.Schedule(1, 1e-3), 1)
        assert training.run(torch.ones(2, 8)).dtype is (torch.bfloat16 if half else torch.float32)
    finally:
        steps.multiplies_bfloat16.cache_clear()


@pytest.mark.parametrize("there", [True, False])
def test_products_are_bfloat16_on_gpus_that_have_them(monkeypatch, there):
    """Older ones only emulate them."""
    asked = []
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: asked.append(including_emulation) or there)
    steps.multiplies_bfloat16.cache_clear()
    try:
        assert steps.multiplies_bfloat16("cuda") is there
        assert asked == [False]
        assert steps.multiplies_bfloat16("mps") is False
    finally:
        steps.multiplies_bfloat16.cache_clear()

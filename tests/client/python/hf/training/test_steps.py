"""What steps of training multiply in, and what they say where there can be none."""

import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import prune_model
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kept_weight_that_is_too_small_for_the_dtype_does_not_become_zero(dtype):
    module = torch.nn.Linear(4, 1, bias=False).to(dtype)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.0, 1.0, 1.0, 1.0]]))
    training = steps.Training(module, ["weight"], steps.Schedule(1, 1e-3), 1)
    (weight,) = training._weights.values()
    with torch.no_grad():
        weight.copy_(torch.tensor([[0.0, 1e-42, -1e-42, 2.0]]))
    training.write()
    least = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}[dtype]
    assert module.weight.tolist() == [[0.0, least, -least, 2.0]]


@pytest.mark.parametrize("steps_of", ["refine_blocks", "distill"])
def test_too_few_samples_are_named(steps_of):
    """More text would not help. Nor is a server asked for: there is none."""
    arguments = {"sparsity": 0.5, "method": "wanda", "progress": False, "server": "127.0.0.1:9", steps_of: True}
    with pytest.raises(sparsefw.InvalidArgument, match=rf"^{steps_of} needs .* got 1: samples must be at least 2 \(CLIENT"):
        prune_model(tiny.make("llama"), data=tiny.tokens(count=12), samples=1, **arguments)
    with pytest.raises(sparsefw.InvalidArgument, match=rf"^{steps_of} needs .* got 1: give more text, or"):
        prune_model(tiny.make("llama"), data=tiny.tokens(count=1), **arguments)

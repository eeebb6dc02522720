"""sparsefw.torch: one layer, Gram sums, and masks that are held."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.calibration.grams import Group, shards_of, sum_grams
from sparsefw.hf.layout import Matrix
from sparsefw.torch import GramSum, apply_result, exact_products, hold_masks, prune_linear
from support import reference
from transformers.pytorch_utils import Conv1D


def inputs(count=3, tokens=700, width=32, dtype=torch.float32):
    generator = torch.Generator().manual_seed(11)
    mixing = torch.randn(width, width, generator=generator) / width**0.5 + torch.eye(width)
    return [(torch.randn(2, tokens, width, generator=generator) @ mixing).to(dtype) for _ in range(count)]


def gram_of(batches):
    x = torch.cat([batch.reshape(-1, batch.shape[-1]) for batch in batches]).double()
    return x.T @ x


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 32), (torch.bfloat16, 32), (torch.float32, 600)])
def test_gram_sum(dtype, width):
    """600 are three panels."""
    gram = GramSum(width)
    batches = inputs(width=width, dtype=dtype)
    for batch in batches:
        gram.add(batch)
    made = gram.matrix()
    assert gram.tokens == 4200
    assert not gram.is_zero
    assert made.dtype == torch.float32
    assert torch.equal(made, made.T)
    expected = gram_of(batches)
    assert (made.double() - expected).abs().max() <= 2e-6 * expected.abs().max()


def test_gram_sum_keeps_small_tokens_beside_large_ones():
    """A float32 sum would lose them: 1e8 + 1 = 1e8."""
    gram = GramSum(1)
    gram.add(torch.full((1, 1), 1e4))
    for _ in range(1000):
        gram.add(torch.ones(1, 1))
    assert gram.matrix().item() == pytest.approx(1e8 + 1000, rel=1e-7)


def test_gram_sum_is_exact_within_autocast():
    """Batches that a generator makes within autocast leave it on for whoever iterates."""
    batches, here, there = inputs(), GramSum(32), GramSum(32)
    for batch in batches:
        here.add(batch)
        with torch.autocast("cpu", torch.bfloat16):
            there.add(batch)
            assert torch.is_autocast_enabled("cpu")
    assert torch.equal(here.matrix(), there.matrix())


@pytest.fixture
def precision():
    """What a user has set; what is set here is undone."""
    before = torch.get_float32_matmul_precision()
    yield torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision(before)
    for backend in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        backend.fp32_precision = "none"


def chosen(backends):
    return [backend.fp32_precision for backend in backends]


def test_gram_sum_within_the_newer_choice_of_precision(precision):
    """The older functions raise after it, also for whoever only asks."""
    for values in (("tf32", "ieee"), ("ieee", "bf16")):
        for backend, value in zip(precision, values, strict=True):
            backend.fp32_precision = value
        with exact_products():
            assert chosen(precision) == ["ieee", "ieee"]
        GramSum(32).add(inputs()[0])
        assert chosen(precision) == list(values)


def test_exact_products_leave_every_choice_of_precision_as_it_was(precision):
    for value in ("high", "medium", "highest"):
        torch.set_float32_matmul_precision(value)
        before = chosen(precision)
        with exact_products():
            assert chosen(precision) == ["ieee", "ieee"]
        assert torch.get_float32_matmul_precision() == value
        assert chosen(precision) == before
    for backend in precision:
        backend.fp32_precision = "none"
    torch.backends.fp32_precision = "tf32"
    with exact_products():
        assert chosen(precision) == ["ieee", "ieee"]
    assert chosen(precision) == ["tf32", "tf32"]
    torch.backends.fp32_precision = "ieee"  # which they still follow
    assert chosen(precision) == ["ieee", "ieee"]


def test_gram_sum_refuses_another_width():
    with pytest.raises(sparsefw.InvalidArgument, match=r"\[..., tokens, 32\]; got \[4, 31\]"):
        GramSum(32).add(torch.ones(4, 31))
    with pytest.raises(sparsefw.InvalidArgument, match="looks transposed"):
        GramSum(32).add(torch.ones(32, 100))


@pytest.mark.parametrize("kind", ["linear", "conv1d"])
def test_prune_linear_in_place(client, kind):
    layer = torch.nn.Linear(32, 24) if kind == "linear" else Conv1D(24, 32)
    parameter, before, bias = layer.weight, layer.weight.detach().clone(), layer.bias.detach().clone()
    batches = inputs()
    result = prune_linear(layer, batches, client=client, sparsity=0.6, iterations=50)
    assert layer.weight is parameter
    assert torch.equal(layer.bias, bias)
    old, new = (w if kind == "linear" else w.T for w in (before, layer.weight.detach()))
    reference.check_counts(result.mask, "per-row", 0.6)
    assert torch.equal(new, old * result.torch_mask())
    assert result.losses.final == pytest.approx(tiny.loss(old, new, gram_of(batches)), rel=1e-4)


def test_prune_linear_writes_new_weights(client):
    layer = torch.nn.Linear(32, 24, dtype=torch.bfloat16)
    batches = inputs(dtype=torch.bfloat16)
    before = layer.weight.detach().clone()
    result = prune_linear(layer, iter(batches), client=client, method="wanda", pattern="2:4", reconstruct=True)
    assert layer.weight.dtype == torch.bfloat16
    assert not bool(layer.weight[~result.torch_mask()].any())
    made = tiny.loss(before, layer.weight.detach(), gram_of(batches))
    assert made == pytest.approx(result.losses.reconstructed, rel=1e-3)
    assert made < result.losses.final


@pytest.mark.parametrize("options", [{"method": "SparseGPT"}, {"preset": "Best"}, {"preset": "best", "joint": False}])
def test_new_weights_arrive_however_names_are_written(client, options):
    layer, batches = torch.nn.Linear(32, 24), inputs()
    before = layer.weight.detach().clone()
    result = prune_linear(layer, batches, client=client, sparsity=0.6, **options)
    made = tiny.loss(before, layer.weight.detach(), gram_of(batches))
    # A preset may shrink the Gram matrix.
    with_g = result.losses.unshrunk
    assert made == pytest.approx(with_g.result if with_g else result.losses.reconstructed, rel=1e-3)


def test_lost_new_weights_are_an_error_and_no_mask_of_the_old_ones(client):
    layer, batches = torch.nn.Linear(32, 24), inputs()
    before, options = layer.weight.detach().clone(), {"method": "wanda", "sparsity": 0.6, "reconstruct": True}
    with pytest.raises(sparsefw.InvalidArgument, match="return_weight must not be False"):
        prune_linear(layer, batches, client=client, return_weight=False, **options)
    result = client.prune(before, gram_of(batches).float(), return_weight=False, **options)
    with pytest.raises(sparsefw.FailedPrecondition, match="updated the weights .* and returned none"):
        apply_result(layer.weight, result)
    assert torch.equal(layer.weight, before)


def test_a_sum_without_tokens_prunes_nothing(client):
    layer = torch.nn.Linear(16, 8)
    before = layer.weight.detach().clone()
    with pytest.raises(sparsefw.InvalidArgument, match="the Gram matrix has no tokens: pass inputs through the layer"):
        prune_linear(layer, GramSum(16), sparsity=0.5, client=client)
    assert torch.equal(layer.weight, before)


def test_prune_linear_refuses_what_is_no_layer(client):
    with pytest.raises(sparsefw.InvalidArgument, match="Embedding"):
        prune_linear(torch.nn.Embedding(4, 4), torch.ones(4, 4), client=client, sparsity=0.5)
    with pytest.raises(sparsefw.InvalidArgument, match="at least one batch"):
        prune_linear(torch.nn.Linear(4, 4), [], client=client, sparsity=0.5)


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [(torch.ones(8, 4).numpy(), "ndarray"), ([torch.ones(8, 4).numpy()], "ndarray"), ([[1.0] * 4] * 8, "list"),
     ([torch.ones(8, 4), [1.0] * 4], "list"), (5, "int"), (None, "NoneType")])
def test_prune_linear_names_inputs_that_are_no_tensors(client, inputs, kind):
    words = rf"inputs must be tensors \[\.\.\., 4\], .* got {kind}: pass torch\.as_tensor\(x\)"
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune_linear(torch.nn.Linear(4, 4), inputs, client=client, sparsity=0.5)


def magnitude(model, share=0.5):
    """Removes the smaller half of every matrix of the blocks; returns where."""
    removed = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layers." in name and parameter.dim() >= 2:
                limit = parameter.abs().flatten().kthvalue(int(share * parameter.numel())).values
                removed[name] = parameter.abs() <= limit
                parameter.masked_fill_(removed[name], 0)
    return removed


def train(model, optimizer, steps=3):
    ids = tiny.tokens()
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


@pytest.mark.parametrize("family", ["llama", "mixtral"])
@pytest.mark.parametrize("kind", ["adamw", "dirty"])
def test_held_masks_survive_training(family, kind):
    model = tiny.make(family).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    train(model, optimizer, 1)  # moments of weights that are removed afterwards
    removed = magnitude(model)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with hold_masks(model) as held:
        assert set(held.names) == set(removed)
        if kind == "dirty":  # any optimizer may do this
            optimizer.register_step_post_hook(
                lambda *_: [p.data.add_(1e-3) for p in model.parameters()])
        train(model, optimizer)
        model(input_ids=tiny.tokens())  # computes without them
        assert not any(bool(model.get_parameter(name)[where].any()) for name, where in removed.items())
        train(model, optimizer, 1)
        saved = model.state_dict()  # saves without them
        for name, where in removed.items():
            assert not bool(saved[name][where].any()), name
            assert not torch.equal(saved[name], before[name]), name
        train(model, optimizer, 1)  # the last step, which nothing uses or saves
    # A file of the tensors themselves is written without a state_dict.
    for name, where in removed.items():
        assert not bool(model.get_parameter(name)[where].any()), name
    train(model, optimizer, 1)
    held.remove()  # again: it has let go
    assert any(bool(model.get_parameter(name)[where].any()) for name, where in removed.items())


def test_held_masks_are_not_saved(folder):
    model = tiny.make("llama")
    magnitude(model)
    model.save_pretrained(folder / "plain")
    with hold_masks(model):
        model.save_pretrained(folder / "held")
    for name in ("model.safetensors", "config.json"):
        assert (folder / "plain" / name).read_bytes() == (folder / "held" / name).read_bytes()


def test_held_masks_work_with_recomputed_activations():
    model = tiny.make("llama").train()
    model.gradient_checkpointing_enable()
    removed = magnitude(model)
    with hold_masks(model):
        train(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        model.state_dict()
    for name, where in removed.items():
        assert not bool(model.get_parameter(name)[where].any()), name


class Attends(torch.nn.Module):
    """PyTorch's attention multiplies with out_proj's weight and never runs out_proj."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.second = torch.nn.Linear(8, 8, bias=False)
        self.second.weight = self.attention.out_proj.weight

    def forward(self, x):
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize("training", [True, False])
def test_held_masks_of_weights_that_another_module_uses(training):
    model = Attends().train(training)
    weight = model.attention.out_proj.weight
    with torch.no_grad():
        weight[:, ::2] = 0
    x = torch.randn(2, 5, 8)
    with torch.set_grad_enabled(training), hold_masks(model) as held:
        assert held.names == ("attention.out_proj.weight",)
        expected = model(x)
        for use in (lambda: model(x), lambda: model.second(x), model.second.state_dict):
            with torch.no_grad():
                weight.add_(torch.where(weight == 0, 1.0, 0.0))  # as an optimizer with older moments
            use()
            assert not bool(weight[:, ::2].any())
        with torch.no_grad():
            weight.add_(torch.where(weight == 0, 1.0, 0.0))
        assert torch.equal(model(x), expected)


def test_what_hold_masks_takes_for_pruned():
    model = torch.nn.ModuleDict({
        "pruned": torch.nn.Linear(8, 8), "dense": torch.nn.Linear(8, 8), "lora_b": torch.nn.Linear(8, 8),
        "words": torch.nn.Embedding(8, 8)})
    with torch.no_grad():
        model["pruned"].weight[:, ::2] = 0
        model["lora_b"].weight.zero_()
        model["words"].weight[:4] = 0
    with hold_masks(model) as held:
        assert held.names == ("pruned.weight",)
    keep = torch.ones(8, 8, dtype=torch.bool)
    assert hold_masks(model, {"dense.weight": keep}).names == ("dense.weight",)
    with pytest.raises(sparsefw.InvalidArgument, match="nothing to hold"):
        hold_masks(torch.nn.Linear(8, 8))
    with pytest.raises(sparsefw.InvalidArgument, match='no parameter "other"'):
        hold_masks(model, {"other": keep})


def test_masks_by_any_name_of_a_tied_parameter():
    """The head is the embedding by another name; `names` are those of `named_parameters`."""
    model = tiny.make("llama")
    tied, own = "lm_head.weight", "model.embed_tokens.weight"
    keep = torch.rand(128, 32) > 0.5
    for masks in ({tied: keep}, {tied: keep, own: keep.clone()}):
        with hold_masks(model, masks) as held:
            assert held.names == (own,)
            train(model, torch.optim.SGD(model.parameters(), lr=0.05))
        assert torch.equal(model.lm_head.weight != 0, keep)
    with pytest.raises(sparsefw.InvalidArgument, match=f'"{own}" and "{tied}" are one parameter; their masks differ'):
        hold_masks(model, {own: keep, tied: ~keep})


def test_numpy_is_enough_without_torch():
    """The low level does not import torch."""
    import subprocess
    import sys

    source = "import sys, sparsefw; assert 'torch' not in sys.modules"
    path = str(np.asarray(sparsefw.__file__)).rpartition("/sparsefw/")[0]
    done = subprocess.run([sys.executable, "-c", source], env={"PYTHONPATH": path}, check=False)
    assert done.returncode == 0


def sums_of_the_modifier(samples):
    """The module by its file: its package needs llm-compressor."""
    path = Path(sparsefw.__file__).parent / "llmcompressor/sums.py"
    spec = importlib.util.spec_from_file_location("sums_of_the_modifier", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Sums(samples)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 17, 63, 64, 65, 128, 1000])
def test_every_sample_is_in_one_shard(count):
    shards = shards_of(count)
    assert [sample for shard in shards for sample in shard] == list(range(count))
    assert len(shards) <= 16 and all(len(shard) >= 4 for shard in shards[:-1])


def test_sums_of_the_modifier_have_the_bits_of_the_pipeline():
    """Sample by sample as llm-compressor gives them, and in one pass over a block."""
    generator = torch.Generator().manual_seed(2)
    samples = [100 * torch.randn(1, 9, 24, generator=generator) for _ in range(21)]
    layer = torch.nn.Linear(24, 3, bias=False)
    sums = sums_of_the_modifier(len(samples))
    for index, sample in enumerate(samples):
        sums.add(layer, index, sample)
    block = torch.nn.Sequential(layer)
    group = Group("0.weight", "0", 24, (Matrix("0.weight", "0", "weight", 3, 24),), True)
    found = sum_grams(block, [group], samples, [Call((), {})] * len(samples))
    assert found["0.weight"].tokens == sums.total(layer).tokens == 189
    assert torch.equal(found["0.weight"].matrix(), sums.total(layer).matrix())
    # Not those of one sum over all tokens: the test would see shards of other sizes.
    whole = GramSum(24)
    for sample in samples:
        whole.add(sample)
    assert not torch.equal(whole.matrix(), sums.total(layer).matrix())


def test_parts_of_a_gram_sum_add_up_to_the_bit_in_any_strips():
    """Symmetric parts: adding whole matrices, or some rows of all of them, gives the same symmetric matrix."""
    generator = torch.Generator().manual_seed(1)
    parts = []
    for count in (5, 300, 17):
        part = GramSum(270)
        part.add(torch.randn(count, 270, generator=generator))
        part.round_to_float32()
        assert torch.equal(part.rows(0, 270), part.rows(0, 270).T)
        parts.append(part)
    with pytest.raises(sparsefw.InvalidArgument, match="call round_to_float32 after the last batch"):
        GramSum(270).rows(0, 1)
    strips = [sum(part.rows(first, last).double() for part in parts) for first, last in ((0, 133), (133, 270))]
    whole = GramSum(270)
    for part in parts:
        whole.merge(part)
    assert whole.tokens == 322
    assert torch.equal(torch.cat(strips).float(), whole.matrix())
    with pytest.raises(sparsefw.InvalidArgument, match="a sum of 270 features cannot take one of 3"):
        whole.merge(GramSum(3))

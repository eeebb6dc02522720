"""Models and layers that cannot be pruned: refused by name before any work."""

import pytest
import sparsefw
import tiny
import torch
import torch.nn.utils.prune
from sparsefw import arrays
from sparsefw.hf import prune_model
from sparsefw.torch import GramSum, hold_masks, prune_linear

ARGUMENTS = {"sparsity": 0.5, "method": "wanda", "progress": False, "server": "127.0.0.1:9"}


@pytest.mark.parametrize("model", [None, 5])
def test_no_model(model):
    with pytest.raises(sparsefw.InvalidArgument, match="^model must be a folder, a name on the hub or a torch"):
        prune_model(model, data=tiny.tokens(count=4), **ARGUMENTS)


def test_weights_that_are_computed_are_refused(client):
    """What would be written into them is lost at the next forward pass."""
    layer = torch.nn.Linear(8, 8)
    torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.1)
    with pytest.raises(sparsefw.InvalidArgument, match="the layer's weight must be a parameter"):
        prune_linear(layer, torch.randn(64, 8), sparsity=0.5, client=client)
    model = tiny.make("llama")
    torch.nn.utils.parametrizations.weight_norm(model.model.layers[1].mlp.down_proj)
    with pytest.raises(sparsefw.InvalidArgument, match=r"layers\.1\.mlp\.down_proj\.weight must be a parameter"):
        prune_model(model, data=tiny.tokens(count=4), **ARGUMENTS)


def test_float8_weights_are_refused():
    model = tiny.make("llama")
    model.model.layers[0].mlp.down_proj.to(torch.float8_e4m3fn)
    with pytest.raises(sparsefw.InvalidArgument, match=r"down_proj\.weight is torch\.float8_e4m3fn: quantised"):
        prune_model(model, data=tiny.tokens(count=4), **ARGUMENTS)


def test_a_model_that_does_not_know_its_embeddings_is_read(client):
    def unknown():
        raise NotImplementedError

    model = tiny.make("llama")
    model.get_output_embeddings = unknown
    report = prune_model(model, data=tiny.tokens(count=4), **{**ARGUMENTS, "server": client})
    assert len(report.layers) == 14


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.empty(2, 2, dtype=torch.float8_e4m3fn), "Float8_e4m3fn"),
        (torch.empty(2, 2, device="meta"), "meta tensor"),
        (torch.empty(2, 2, device="meta", dtype=torch.bfloat16), "meta tensor"),
        (torch.eye(2).to_sparse(), "[Ss]parse"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
    ],
    ids=["float8", "meta", "meta, bfloat16", "sparse", "ragged"],
)
def test_arrays_that_numpy_cannot_hold(value, why):
    with pytest.raises(sparsefw.InvalidArgument, match=f"^weight must be an array that NumPy can hold.*{why}"):
        arrays.as_buffer(value, "weight", ("float32", "bfloat16"))


def test_masks_of_a_result_are_held_as_they_come():
    """NumPy arrays, as Result.mask has them."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    mask = torch.eye(4).bool().numpy()
    with hold_masks(model, {"0.weight": mask}):
        pass
    assert torch.equal(model[0].weight != 0, torch.eye(4).bool())


@pytest.mark.parametrize("inputs", [[[1.0]], torch.ones(2, 4, dtype=torch.int64), torch.tensor(1.0)], ids=str)
def test_a_gram_matrix_is_of_floating_point_tensors(inputs):
    gram = GramSum(4)
    with pytest.raises(sparsefw.InvalidArgument, match=r"^inputs must be a tensor of floating-point numbers"):
        gram.add(inputs)
    assert gram.tokens == 0

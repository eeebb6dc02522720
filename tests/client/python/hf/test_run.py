"""Where a run computes, and what it holds while an error of it is looked at."""

import grpc
import pytest
import sparsefw
import tiny
import torch
from sparsefw import errors
from sparsefw.hf import prune_model, run, work
from sparsefw.hf.calibration import hidden, step, walk
from sparsefw.hf.calibration.capture import first_call
from sparsefw.hf.calibration.grams import find_groups, stream_inputs
from sparsefw.hf.layout import layout_of
from sparsefw.hf.source import InMemory, Streamed


def samples_of(source):
    one = run.Run(source, None, [], [torch.zeros(1, 4, dtype=torch.long)], None, None, lasting=False)
    return {sample.device for sample in one._samples}


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama"])
def test_samples_go_to_the_device_of_the_source(folder, family):
    """No parameter of a folder says it, and OPT has no buffer. "meta" stands for a device that is
    not there."""
    tiny.make(family).save_pretrained(folder / "dense")
    assert samples_of(Streamed(folder / "dense", "meta")) == {torch.device("meta")}
    assert samples_of(Streamed(folder / "dense")) == {torch.device("cpu")}


def test_samples_go_where_the_input_embedding_is(monkeypatch):
    model = tiny.make("llama")
    source = InMemory(model)
    assert source.device == torch.device("cpu")
    model.model.layers.to("meta")  # other devices of a model that is spread
    model.model.norm.to("meta")
    assert samples_of(source) == {torch.device("cpu")}
    model.model.embed_tokens.to("meta")
    model.lm_head.to("cpu")
    assert samples_of(source) == {torch.device("meta")}

    def unknown():
        raise NotImplementedError

    monkeypatch.setattr(model, "get_input_embeddings", unknown)
    assert source.device == next(model.parameters()).device


def test_within_inference_mode_masks_are_the_same(client):
    """What it makes has no version that would tell layers with the same input. Training needs gradients."""
    expected, model = tiny.make("llama"), tiny.make("llama")
    options = {"data": tiny.tokens(), "sparsity": 0.5, "server": client, "progress": False}
    prune_model(expected, method="wanda", **options)
    with torch.inference_mode():
        prune_model(model, method="wanda", **options)
        with pytest.raises(sparsefw.InvalidArgument, match=r"needs gradients, which torch.inference_mode\(\) has not"):
            prune_model(model, refine_blocks=True, **options)
    assert tiny.same(expected, model)


def hooks_of(model):
    return [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]


def test_an_error_while_activations_are_streamed_leaves_no_hook(restartable, monkeypatch):
    """Nor gradients switched off, however long somebody looks at the error."""
    server, model = restartable(), tiny.make("llama")
    stream = step.stream_inputs

    def lost(*arguments):
        server.kill()
        return stream(*arguments)

    monkeypatch.setattr(step, "stream_inputs", lost)
    options = sparsefw.Options(retry=sparsefw.Retry(give_up_after=0.5))
    with sparsefw.connect(server.address, options=options) as client:
        with pytest.raises(sparsefw.Unavailable) as held:
            prune_model(
                model, data=tiny.tokens(), server=client, sparsity=0.5, gram="server", progress=False)
        assert torch.is_grad_enabled()
        assert hooks_of(model) == []
        assert held.value.__traceback__ is not None


@pytest.mark.parametrize("finished", [False, True])
def test_streamed_inputs_are_let_go_between_samples(finished):
    model = tiny.make("llama")
    block, seen = model.model.layers[0], []
    (of_block, *_) = layout_of(model, (), False)
    states = torch.zeros(1, 4, 32)
    call = first_call(model, block, tiny.tokens(1, 4))[1]
    group = find_groups(block, of_block, states, call)[0]
    inputs = stream_inputs(block, group, [states, states], [call, call])
    for tokens in inputs:
        seen.append(tokens.shape)
        assert torch.is_grad_enabled()
        assert hooks_of(model) == []
        if not finished:
            break
    assert seen == [(4, 32)] * (2 if finished else 1)


@pytest.mark.parametrize("allocation", ["uniform", "loss-curve", "owl"])
def test_an_error_holds_neither_the_file_nor_the_block(client, folder, monkeypatch, allocation):
    sources, files = [], []

    class Seen(hidden.HiddenStates):
        def __init__(self, place, streams):
            super().__init__(place, streams)
            files.append(self)

    def streamed(*arguments):
        sources.append(Streamed(*arguments))
        return sources[-1]

    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    monkeypatch.setattr(walk, "HiddenStates", Seen)
    monkeypatch.setattr(work, "Streamed", streamed)
    model = tiny.make("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[3, 4] = float("nan")
    model.save_pretrained(folder / "dense")
    with pytest.raises(sparsefw.InvalidArgument) as held:
        prune_model(
            folder / "dense", data=tiny.tokens(), server=client, sparsity=0.5, allocation=allocation,
            method="wanda", progress=False)
    assert held.value.reason == "NON_FINITE"
    assert {states._file for states in files} == {None}
    assert {value.device.type for value in sources[0].model.parameters()} == {"meta"}


def in_a_file(folder, monkeypatch, *samples):
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    states = hidden.HiddenStates(folder)
    for sample in samples:
        states.append(sample)
    assert states._file is not None
    return states


def test_hidden_states_may_get_another_shape(folder, monkeypatch):
    states = in_a_file(folder, monkeypatch, torch.rand(1, 4, 8), torch.rand(1, 4, 8))
    neighbour = states[1]
    for shape in ((1, 4, 6), (1, 4, 16), (1, 2, 8)):
        value = torch.rand(*shape)
        states[0] = value
        assert torch.equal(states[0], value)
    states[0] = torch.rand(4, 8, 1, dtype=torch.float64)
    assert states[0].shape == (4, 8, 1)
    with pytest.raises(sparsefw.InvalidArgument, match=r"sample 0 must fit into 256 bytes .*\[1, 4, 17\]"):
        states[0] = torch.rand(1, 4, 17)
    assert torch.equal(states[1], neighbour)
    states.close()


class Counted(hidden.HiddenStates):
    """Knows all of them that were made, and how many had a file at once when a sample came."""

    made: list = []
    most = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(self)

    def append(self, sample):
        super().append(sample)
        Counted.most = max(Counted.most, sum(states._file is not None for states in self.made))


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    monkeypatch.setattr(Counted, "made", [])
    monkeypatch.setattr(Counted, "most", 0)
    monkeypatch.setattr(walk, "HiddenStates", Counted)
    monkeypatch.setattr(run, "HiddenStates", Counted)
    return Counted


def test_no_more_than_two_copies_of_hidden_states_are_in_files(client, counted):
    """At the end these are the targets, and what they are made from."""
    options = {"data": tiny.tokens(), "server": client, "sparsity": 0.5, "method": "wanda", "progress": False}
    prune_model(tiny.make("llama"), distill={"epochs": 1}, **options)
    assert len(counted.made) == 3
    assert counted.most == 2
    assert {states._file for states in counted.made} == {None}


@pytest.mark.parametrize("place", ["append", "_distil"])
def test_an_interrupt_at_the_end_closes_the_targets(place, client, counted, monkeypatch):
    """While they are kept, and before distillation takes them."""
    def stops(self, *arguments):
        if place == "_distil" or (len(self.made) == 3 and self is self.made[2] and len(self) == 2):
            raise KeyboardInterrupt
        hidden.HiddenStates.append(self, *arguments)

    monkeypatch.setattr(run.Run if place == "_distil" else Counted, place, stops)
    options = {"data": tiny.tokens(), "server": client, "sparsity": 0.5, "method": "wanda", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        prune_model(tiny.make("llama"), distill={"epochs": 1}, **options)
    assert len(counted.made) == 3
    assert {states._file for states in counted.made} == {None}


def test_targets_of_an_earlier_try_are_let_go(client, counted, folder, monkeypatch):
    """A cluster that loses hidden states lets the samples pass the finished blocks again."""
    tiny.make("llama").save_pretrained(folder / "dense")
    real, tries = run.Run._keep_targets, []

    def loses(self, step):
        real(self, step)
        tries.append(1)
        if len(tries) == 1:
            raise sparsefw.Unavailable("lost", code=grpc.StatusCode.UNAVAILABLE, reason=errors.CALIBRATION_LOST)

    monkeypatch.setattr(run.Run, "_keep_targets", loses)
    report = prune_model(
        folder / "dense", data=tiny.tokens(), server=client, sparsity=0.5, method="wanda", progress=False,
        distill={"epochs": 1})
    assert report.distillation is not None
    assert (len(tries), len(counted.made), counted.most) == (2, 6, 2)
    assert {states._file for states in counted.made} == {None}

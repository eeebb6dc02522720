"""Where a run computes, and what it holds while an error of it is looked at."""

import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import prune_model, run
from sparsefw.hf.capture import first_call
from sparsefw.hf.grams import find_groups, stream_inputs
from sparsefw.hf.layout import layout_of
from sparsefw.hf.source import InMemory, Streamed


def samples_of(source):
    one = run.Run(source, None, [], [torch.zeros(1, 4, dtype=torch.long)], None, None, lasting=False)
    return {sample.device for sample in one._samples}


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama"])
def test_samples_go_to_the_device_of_the_source(folder, family):
    """Of a folder no parameter says it, and OPT has no buffer. "meta" stands for a device that is not there."""
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


def hooks_of(model):
    return [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]


def test_an_error_while_activations_are_streamed_leaves_no_hook(restartable, monkeypatch):
    """Nor gradients switched off, however long somebody looks at the error."""
    server, model = restartable(), tiny.make("llama")
    stream = run.stream_inputs

    def lost(*arguments):
        server.kill()
        return stream(*arguments)

    monkeypatch.setattr(run, "stream_inputs", lost)
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
    hidden = torch.zeros(1, 4, 32)
    call = first_call(model, block, tiny.tokens(1, 4))[1]
    group = find_groups(block, of_block, hidden, call)[0]
    inputs = stream_inputs(block, group, [hidden, hidden], [call, call])
    for tokens in inputs:
        seen.append(tokens.shape)
        assert torch.is_grad_enabled()
        assert hooks_of(model) == []
        if not finished:
            break
    assert seen == [(4, 32)] * (2 if finished else 1)

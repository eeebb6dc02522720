"""Token ids as data of whole models."""

import re

import numpy as np
import pytest
import sparsefw
import tiny
import torch
import transformers
from sparsefw.hf import data, evaluate_perplexity, prune_model


def test_token_ids_may_be_numpys():
    ids = list(np.arange(10))
    assert [part.tolist() for part in data.sequences(None, ids, 5, None)] == [
        [[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 9]]]
    with pytest.raises(sparsefw.InvalidArgument, match="a mixture"):
        data.sequences(None, ["text", [1, 2]], 5, None)
    with pytest.raises(sparsefw.InvalidArgument, match="data must be texts, or token ids; got int"):
        data.sequences(None, 5, 5, None)


class Characters:
    """A tokenizer of characters, with a token of its own before a text."""
    bos_token_id = 1

    def __init__(self, begins):
        self.begins = begins

    def __call__(self, text, verbose=True):
        return {"input_ids": [self.bos_token_id] * self.begins + list(map(ord, text))}


def test_every_sequence_of_a_text_begins_as_texts_do():
    """Gemma's perplexity is twice as high without."""
    def of(text, length, begins=1):
        return [part.tolist()[0] for part in data.sequences(Characters(begins), text, length, None)]

    assert of("abcdefg", 4) == [[1, 97, 98, 99], [1, 100, 101, 102]]
    assert of("ab", 4) == [[1, 97, 98]], "what there is"
    assert of("ab", 2) == [[1, 97], [1, 98]]
    assert of([1, 97, 98, 99], 2) == [[1, 97], [98, 99]], "token ids are cut as they are"
    assert of("abcd", 2, begins=0) == [[97, 98], [99, 100]], "it does not begin a text with it"
    assert of("\x01abc", 2, begins=0) == [[1, 97], [98, 99]], "the text does, once"


ROBERTA = transformers.RobertaConfig(
    **tiny.COMMON, intermediate_size=48, max_position_embeddings=34, pad_token_id=1, is_decoder=True)
MPT = transformers.MptConfig(d_model=32, n_heads=4, n_layers=1, max_seq_len=32, vocab_size=128)


@pytest.mark.parametrize("config", [ROBERTA, MPT], ids=["roberta", "mpt"])
def test_sequences_are_no_longer_than_the_positions_that_tokens_have(config, client):
    """RoBERTa's begin behind that of padding; MPT has another name for their number."""
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.warns(UserWarning, match="take more text"):
        assert evaluate_perplexity(model, data=[5] * 100).length == 32
    report = prune_model(
        model, data=[[5] * 100] * 2, sparsity=0.5, method="magnitude", ignore=["lm_head"], server=client, progress=False)
    assert report.settings["sequence_length"] == 32
    with pytest.warns(UserWarning, match="take more text"):
        assert evaluate_perplexity(model, data=[5] * 100, sequence_length=20).length == 20


def test_the_name_of_a_file_that_is_not_there_is_no_text():
    for name in ("data.txt", "my data/held out.txt"):
        with pytest.raises(sparsefw.InvalidArgument, match=f"{name}: there is no such file"):
            data.listed(name)
    for text in ("Two words.", "A line\nand notes.txt", f"{'long ' * 1000}notes.txt"):
        assert data.listed(text) == [text]


def test_sequences_may_be_batches_of_one():
    """As tokenizers return them."""
    ids = tiny.tokens(2, 5)
    for rows in (list(ids[:, None]), ids[:, None], ids[:, None].numpy(), ids[:, None].tolist(), [list(row) for row in ids]):
        assert torch.equal(torch.cat(data.sequences(None, rows, 5, None)), ids)
    assert torch.equal(data.sequences(None, list(ids[0]), 5, None)[0], ids[:1])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["a", "b"]], "data[0]: token ids must be integers; got 'a'"),
        ([[["a"]]], "data[0]: token ids must be integers; got 'a'"),
        ([[1, 2], [1.5, 2.5]], "data[1]: token ids must be integers; got 1.5"),
        ([[[1, 2], [3, 4]]], "data[0]: token ids must be integers; got [1, 2]"),
        ([torch.ones(1, 2)], "data[0]: token ids must be integers; got 1.0"),
        ([[1, 2], [1, 128]], "data: token ids must be in [0, 128), the model's vocabulary; got 128"),
        ([[1, 2], [1, -1]], "data: token ids must be in [0, 128), the model's vocabulary; got -1"),
        ([1, 2**70], f"data: token ids must be in [0, 128), the model's vocabulary; got {2**70}"),
    ],
)
def test_what_is_no_token_id_is_named(rows, words):
    """Before a server is asked for anything: there is none."""
    dense = tiny.make("llama")
    with pytest.raises(sparsefw.InvalidArgument, match=re.escape(words)):
        prune_model(dense, data=rows, sparsity=0.5, server="127.0.0.1:9", progress=False)
    with pytest.raises(sparsefw.InvalidArgument, match=re.escape(words)):
        evaluate_perplexity(dense, data=rows)

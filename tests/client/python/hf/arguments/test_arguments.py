"""Arguments of the wrong type or range: each is refused by its name, before a server is asked for anything."""

import re

import numpy as np
import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import BlockRefinement, Distillation, evaluate_perplexity, prune_model, tune

NAN, INFINITE, HUGE = float("nan"), float("inf"), 10**400
# (arguments, what the message begins with, the value in it)
WRONG = [
    *(({"samples": value}, "samples must be a whole number of at least 1", got)
      for value, got in (("x", "'x'"), (2.5, "2.5"), (None, "None"), (True, "True"), (0, "0"), ([1], "[1]"))),
    *(({"sequence_length": value}, "sequence_length must be a whole number of at least 2", got)
      for value, got in (("x", "'x'"), (2.5, "2.5"), (None, "None"), (NAN, "nan"), (True, "True"), (1, "1"))),
    ({"num_calibration_samples": "x"}, "num_calibration_samples must be a whole number of at least 1", "'x'"),
    ({"max_seq_length": 2.5}, "max_seq_length must be a whole number of at least 2", "2.5"),
    *(({"gram_memory": value}, "gram_memory must be a whole number of bytes of at least 1", got)
      for value, got in (("x", "'x'"), (NAN, "nan"), (-1, "-1"), (None, "None"), ([1], "[1]"), (True, "True"))),
    *(({"split_above": value}, "split_above must be a whole number of weights of at least 1", got)
      for value, got in (("x", "'x'"), (NAN, "nan"), (0, "0"), (None, "None"))),
    *(({"seed": value}, "seed must be a whole number or None", got)
      for value, got in (("x", "'x'"), (2.5, "2.5"), ([1], "[1]"), (True, "True"))),
    *(({"allocation": "owl", "allocation_bound": value}, "allocation_bound must be a number in (0, 1]", got)
      for value, got in (("x", "'x'"), (True, "True"), (0, "0"), (NAN, "nan"), ([1], "[1]"))),
    *(({"allocation": value}, "the rules of allocation must be texts", got)
      for value, got in (({1: 0.5}, "1"), ({None: 0.5}, "None"))),
    *(({"ignore": value}, "ignore must be regular expressions, or one", got)
      for value, got in ((None, "None"), ([1], "1"), (7, "7"), (b"ab", "97"), (["mlp", None], "None"))),
    *(({"pattern": value}, 'pattern must be "per-row", "unstructured" or "K:N"', got)
      for value, got in ((None, "None"), (3, "3"), (["2:4"], "['2:4']"))),
    ({"pattern": "2:4", "sparsity": NAN}, 'pattern "2:4" has its own sparsity, 0.5', "sparsity=nan"),
    *(({"propagate": value}, "propagate must be True or False", got)
      for value, got in (("no", "'no'"), (None, "None"), (0, "0"))),
    ({"routers": "no"}, "routers must be True or False", "'no'"),
    ({"overwrite": "no"}, "overwrite must be True or False", "'no'"),
    *(({"server": value}, 'server must be "auto", "ray", an address, a client, or a list of these', got)
      for value, got in ((None, "None"), (5, "5"), ([5], "[5]"))),
    *(({"data": value}, begins, got) for value, begins, got in (
        ([[True, False, True]], "data[0]: token ids must be integers", "True"),
        ([True, 1], "data must be texts, or token ids; got a mixture", ""),
        ("\ud83d x", "data must be texts of valid Unicode", ": surrogates not allowed"))),
    ({"refine_blocks": {1: 2, "a": 3}}, "refine_blocks: a BlockRefinement has no", "1"),
    ({"distill": {None: 2, "a": 3}}, "distill: a Distillation has no", "None"),
    ({"alpha": NAN}, "alpha must be finite", "nan"),
    ({"shrinkage": INFINITE}, "shrinkage must be finite", "inf"),
    ({"tune": [{"alpha": NAN}, {}]}, "candidate 1 of tune: alpha must be finite", "nan"),
    ({"tune": [{}, {"propagate": "no"}]}, "candidate 2 of tune: propagate must be True or False", "'no'"),
    ({"tune": [{1: 2}, {}]}, "candidate 1 of tune: names of arguments must be texts", "1"),
    ({"tune": [{}, {"refine_blocks": {1: 2}}]}, "candidate 2 of tune: refine_blocks: a BlockRefinement has no", "1"),
    ({"tune": [{}, {"allocation": {"nowhere": 0.5}}]}, 'candidate 2 of tune: the rule "nowhere" of allocation matches no', ""),
]  # fmt: skip


@pytest.mark.parametrize(("options", "begins", "got"), WRONG, ids=lambda value: str(value)[:60])
def test_wrong_arguments_are_named_before_a_server_is_asked(options, begins, got):
    model = tiny.make("llama")
    arguments = {"sparsity": 0.5, "method": "wanda", "progress": False, "server": "127.0.0.1:9",
                 "data": tiny.tokens(count=8), **options}
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        prune_model(model, **arguments)
    assert refused.value.reason == "CLIENT_ARGUMENT"
    assert re.match(rf"{re.escape(begins)}.*{re.escape(got)}$", refused.value.message), refused.value.message
    assert tiny.same(model, tiny.make("llama"))


@pytest.mark.parametrize("kind", [BlockRefinement, Distillation])
def test_rates_that_no_float_holds(kind):
    """They pass every comparison of integers, and fail once a block is solved."""
    for name in ("learning_rate", "held_back"):
        with pytest.raises(sparsefw.InvalidArgument, match=rf"^{name} of a {kind.__name__} must be .*got 1000+\.\.\.0+ \("):
            kind(**{name: HUGE})


def test_tune_checks_what_prune_model_does():
    arguments = {"data": tiny.tokens(count=8), "candidates": [{}, {}], "sparsity": 0.5, "server": "127.0.0.1:9"}
    for options, begins in (
        ({"ignore": None}, "ignore must be"),
        ({"propagate": "no"}, "propagate must be True or False; got 'no'"),
        ({"samples": "x"}, "samples must be a whole number"),
    ):
        with pytest.raises(sparsefw.InvalidArgument, match=rf"^{begins}"):
            tune(tiny.make("llama"), progress=False, **arguments, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sequence_length": "x"}, "sequence_length must be a whole number of at least 2; got 'x'"),
        ({"sequence_length": None}, "sequence_length must be a whole number of at least 2; got None"),
        ({"sequence_length": 2.5}, "sequence_length must be a whole number of at least 2; got 2.5"),
        ({"samples": "x"}, "samples must be a whole number of at least 1; got 'x'"),
        ({"samples": 2.5}, "samples must be a whole number of at least 1; got 2.5"),
    ],
)
def test_the_windows_of_a_perplexity(options, words):
    with pytest.raises(sparsefw.InvalidArgument, match=rf"^{words} \("):
        evaluate_perplexity(tiny.make("llama"), data=tiny.tokens(count=8), **options)


def test_what_is_right_stays_so(client):
    """Numbers and truth values of NumPy and PyTorch; a rule, a tuple or a generator of rules to ignore."""
    for ignore in ("self_attn", ("self_attn",), (rule for rule in ["self_attn"]), ["self_attn", "lm_head"]):
        report = prune_model(
            tiny.make("llama"), data=tiny.tokens(count=8), server=client, sparsity=0.5, method="wanda", progress=False,
            ignore=ignore, samples=np.int64(4), sequence_length=torch.tensor(16), seed=np.int32(3),
            gram_memory=np.int64(1 << 20), propagate=np.bool_(False), routers=torch.tensor(False),
            allocation="owl", allocation_bound=np.float32(0.1))
        assert len(report.layers) == 2 * 3
        assert report.settings["propagate"] is False

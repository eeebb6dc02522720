"""Options of a job as keyword arguments: one for every option that a message has, and each finds its field."""

import re
import reprlib

import pytest

import sparsefw
from sparsefw import spec
from sparsefw.v1 import job_pb2

PARTS = {"": job_pb2.JobSpec, "sparsefw": job_pb2.SparseFwOptions, "refine": job_pb2.Refine,
         "sparsegpt": job_pb2.SparseGptOptions}
# Fields of JobSpec that the client fills in, or that other keywords name.
OTHERS = {"weight", "gram", "pattern", "warm_start", "sparsefw", "refine", "sparsegpt", "sweep",
          "product_precision", "return_pruned_weight"}


def test_every_option_of_the_messages_is_a_keyword():
    fields = {field.name for message in PARTS.values() for field in message.DESCRIPTOR.fields} - OTHERS
    assert "joint_excluded" in fields and "shrinkage" in fields
    assert fields <= set(spec.JobOptions.__annotations__)
    for name in fields:
        assert re.search(rf"\b{name}\b", spec.JobOptions.__doc__), f"the docstring lacks {name}"


@pytest.mark.parametrize("name", sorted(set(spec.JobOptions.__annotations__) - set(spec._COMPOSED)))
def test_every_keyword_finds_its_field(name):
    value = {"method": "alps", "preset": "best", "step_rule": "line-search", "precision": "tf32",
             "device": "cpu"}.get(name, 1)
    made = spec.make_spec({"pattern": "2:4", name: value})
    plain = spec.make_spec({"pattern": "2:4"})
    assert made != plain


def test_names_of_values():
    made = spec.make_spec({"pattern": "2:4", "step_rule": "line-search", "precision": "bf16",
                           "warm_start": "ria", "swaps": 1})
    assert made.sparsefw.step_rule == job_pb2.STEP_RULE_LINE_SEARCH
    assert made.product_precision == job_pb2.PRODUCT_PRECISION_BF16
    assert made.warm_start.method == job_pb2.METHOD_RIA
    assert made.refine.swaps and not made.refine.HasField("joint")
    with pytest.raises(sparsefw.Error, match='step_rule must be one of "open-loop", "line-search", "auto"'):
        spec.make_spec({"pattern": "2:4", "step_rule": "unspecified"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "x"}, "alpha must be a number; got 'x'"),
        ({"alpha": [0.5]}, "alpha must be a number; got [0.5]"),
        ({"iterations": 1.5}, "iterations must be a whole number of 64 bits; got 1.5"),
        ({"priority": 2**40}, "priority must be a whole number of 32 bits; got 1099511627776"),
        ({"device": 0}, "device must be a text; got 0"),
        ({"labels": {"a": 1}}, "labels must be texts by name; got {'a': 1}"),
        ({"labels": {1: "a"}}, "labels must be texts by name; got {1: 'a'}"),
        ({"labels": "layer"}, "labels must be texts by name, such as {\"layer\": \"7.q\"}; got 'layer'"),
        ({"deadline": "5s"}, "deadline must be seconds in [0, 3.15e+11]; got '5s'"),
        ({"deadline": 1e12}, "deadline must be seconds in [0, 3.15e+11]; got 1000000000000.0"),
        ({"result_ttl": float("nan")}, "result_ttl must be seconds in [0, 3.15e+11]; got nan"),
        ({"pattern": 24}, 'pattern must be "per-row", "unstructured" or "K:N"; got 24'),
        ({"sparsity": "x"}, "sparsity must be a number; got 'x'"),
        ({"pattern": "per-row", "sparsity": True}, "sparsity must be a number; got True"),
        ({"pattern": "per-row", "sparsity": "0.5"}, "sparsity must be a number; got '0.5'"),
        ({"alpha": True}, "alpha must be a number; got True"),
        ({"deadline": True}, "deadline must be seconds in [0, 3.15e+11]; got True"),
        ({"iterations": True}, "iterations must be a whole number of 64 bits; got True"),
        ({"swaps": "false"}, "swaps must be True or False; got 'false'"),
        ({"reconstruct": float("nan")}, "reconstruct must be True or False; got nan"),
        ({"swaps": 2}, "swaps must be True or False; got 2"),
        ({"return_weight": "no"}, "return_weight must be True or False; got 'no'"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_option(options, message):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        spec.make_spec({"pattern": "2:4", **options})
    assert (refused.value.reason, refused.value.message) == ("CLIENT_ARGUMENT", message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connect_timeout": "5"}, "connect_timeout must be a number of at least 0; got '5'"),
        ({"call_timeout": -1}, "call_timeout must be a number of at least 0; got -1"),
        ({"watch_silence": float("nan")}, "watch_silence must be a number of at least 0.3; got nan"),
        ({"chunk_bytes": 1.5}, "chunk_bytes must be a whole number in [1, 2093056]; got 1.5"),
        ({"chunk_bytes": True}, "chunk_bytes must be a whole number in [1, 2093056]; got True"),
        ({"chunk_bytes": 10**400}, f"chunk_bytes must be a whole number in [1, 2093056]; got {reprlib.repr(10**400)}"),
        ({"gram_window_bytes": 0}, "gram_window_bytes must be a whole number of at least 1; got 0"),
    ],
)
def test_options_of_a_connection_are_checked(options, message):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        sparsefw.Options(**options)
    assert refused.value.message == message
    sparsefw.Options(watch_silence=float("inf"), chunk_bytes=1, gram_window_bytes=None)


@pytest.mark.parametrize("name", ["initial_backoff", "max_backoff", "multiplier", "give_up_after"])
def test_a_retry_that_would_never_give_up_is_refused(name):
    for value in (float("nan"), -1, "5", True):
        with pytest.raises(sparsefw.InvalidArgument, match=f"^{name} must be a number of at least"):
            sparsefw.Retry(**{name: value})


def test_a_point_of_a_sweep_names_its_wrong_value():
    with pytest.raises(sparsefw.InvalidArgument, match="swaps must be True or False; got 'no'"):
        spec.make_points({"pattern": "2:4"}, [{"swaps": "no"}])
    with pytest.raises(sparsefw.InvalidArgument, match="alpha must be a number; got 'x'"):
        spec.make_points({"pattern": "2:4"}, [{"alpha": "x"}])

"""Options of a job as keyword arguments: one for every option that a message has, and each finds its field."""

import re

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
    ],
)
def test_a_value_of_another_type_is_named_with_its_option(options, message):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        spec.make_spec({"pattern": "2:4", **options})
    assert (refused.value.reason, refused.value.message) == ("CLIENT_ARGUMENT", message)


def test_a_point_of_a_sweep_names_its_wrong_value():
    with pytest.raises(sparsefw.InvalidArgument, match="alpha must be a number; got 'x'"):
        spec.make_points({"pattern": "2:4"}, [{"alpha": "x"}])

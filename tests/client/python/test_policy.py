"""Back-off, errors, credentials and options, without a server."""

import pickle
import random

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

import sparsefw
from sparsefw import errors, spec
from sparsefw._rpc.backoff import Backoff
from sparsefw._rpc.credentials import is_loopback, make_credentials
from sparsefw.v1 import job_pb2

RETRY = sparsefw.Retry(initial_backoff=0.1, max_backoff=2, multiplier=2, give_up_after=60)


def test_waits_grow_to_a_bound_and_have_jitter():
    backoff = Backoff(RETRY, 0.0, random.Random(3))
    waits = [backoff.next(0.0) for _ in range(8)]
    bases = [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2]
    assert all(base / 2 <= wait <= base for base, wait in zip(bases, waits, strict=True))
    assert len(set(waits)) == len(waits)
    backoff.reset(0.0)
    assert backoff.next(0.0) <= 0.1


def test_a_delay_of_the_server_is_never_shortened_but_by_the_time_to_give_up():
    backoff = Backoff(RETRY, 0.0)
    assert backoff.next(0.0, 5.0) >= 5.0
    assert backoff.next(58.0, 5.0) == 2.0
    assert backoff.next(60.0) is None
    backoff.reset(60.0)
    assert backoff.next(61.0) is not None


def status(code, reason="", metadata=None, delay=None):
    message = status_pb2.Status(code=code, message="what is wrong")
    if reason:
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(
            reason=reason, domain="sparsefw", metadata=metadata or {}))
        message.details.append(detail)
    if delay is not None:
        detail = any_pb2.Any()
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(int(delay * 1000))
        detail.Pack(info)
        message.details.append(detail)
    return message


def test_errors_carry_code_reason_and_metadata():
    error = errors.from_status(status(code_pb2.INVALID_ARGUMENT, "NON_FINITE", {"field": "gram"}))
    assert isinstance(error, sparsefw.InvalidArgument)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.reason, error.metadata, error.message) == (
        "NON_FINITE", {"field": "gram"}, "what is wrong")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.reason, again.metadata, str(again)) == (error.reason, error.metadata, str(error))


def test_every_code_has_a_class_of_its_own():
    classes = {type(errors.from_status(status(code.value[0]))) for code in grpc.StatusCode
               if code not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN,
                               grpc.StatusCode.ALREADY_EXISTS)}
    assert len(classes) == len(grpc.StatusCode) - 3
    assert all(issubclass(one, sparsefw.Error) for one in classes)


@pytest.mark.parametrize(
    ("message", "transient"),
    [
        (status(code_pb2.UNAVAILABLE), True),
        (status(code_pb2.UNAVAILABLE, "DRAINING"), True),
        (status(code_pb2.RESOURCE_EXHAUSTED, "HOST_MEMORY", delay=0.5), True),
        (status(code_pb2.RESOURCE_EXHAUSTED, "TENSOR_TOO_LARGE"), False),
        (status(code_pb2.CANCELLED), True),
        (status(code_pb2.CANCELLED, "CANCELLED"), False),
        (status(code_pb2.INTERNAL), False),
        (status(code_pb2.INVALID_ARGUMENT), False),
        (status(code_pb2.DEADLINE_EXCEEDED), False),
    ],
)
def test_what_is_tried_again(message, transient):
    assert errors.is_transient(errors.from_status(message)) is transient


def test_a_broken_connection_inside_a_response_is_tried_again():
    error = errors.Internal("Received RST_STREAM with error code 2", code=grpc.StatusCode.INTERNAL)
    assert errors.is_transient(error)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("localhost:1", True), ("[::1]:1", True),
        ("unix:/run/s", True), ("127.evil.example:1", False), ("10.0.0.1:1", False),
        ("server:1", False), ("localhost.evil.example:1", False), ("127.0.0.1.evil:1", False),
    ],
)
def test_tokens_travel_in_plain_text_to_this_machine_only(address, loopback):
    assert is_loopback(address) is loopback
    arguments = {"tls": False, "tls_ca": None, "tls_cert": None, "tls_key": None}
    if loopback:
        credentials = make_credentials(address, token="secret", **arguments)
        assert credentials.metadata == (("authorization", "Bearer secret"),)
        return
    with pytest.raises(sparsefw.InvalidArgument, match="plain") as refused:
        make_credentials(address, token="secret-token", **arguments)
    assert "secret-token" not in str(refused.value)
    assert make_credentials(address, token="secret", **{**arguments, "tls": True}).channel


@pytest.mark.parametrize("token", ["a b", "a\nb", "ümlaut"])
def test_what_is_no_token_is_refused_without_being_shown(token):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        make_credentials("localhost:1", token=token, tls=False, tls_ca=None, tls_cert=None, tls_key=None)
    assert token not in str(refused.value)


@pytest.mark.parametrize("bad", [{"chunk_bytes": 0}, {"chunk_bytes": 2 << 20}, {"watch_silence": 0.1}])
def test_options_out_of_range_are_refused(bad):
    with pytest.raises(sparsefw.InvalidArgument):
        sparsefw.Options(**bad)


def test_a_spec_has_every_option():
    message = spec.make_spec({
        "method": "ria", "pattern": "unstructured", "sparsity": 0.5, "alpha": 0.25, "iterations": 7,
        "step_rule": "line-search", "rel_gap": 0.01, "report_every": 3, "warm_start": "magnitude",
        "ria_exponent": 0.75, "shrinkage": 0.125, "swaps": True, "keep_fixed": False, "reconstruct": True,
        "damping": 0.02,
        "block_size": 64, "device": "cpu", "precision": "bf16", "priority": -3, "deadline": 1.5,
        "result_ttl": 60, "labels": {"a": "b"},
    })
    expected = job_pb2.JobSpec(
        method=job_pb2.METHOD_RIA, shrinkage=0.125, reconstruct=True, return_pruned_weight=True, device="cpu",
        priority=-3,
        product_precision=job_pb2.PRODUCT_PRECISION_BF16, labels={"a": "b"},
        pattern=job_pb2.Pattern(unstructured=job_pb2.Pattern.Unstructured(sparsity=0.5)),
        sparsefw=job_pb2.SparseFwOptions(alpha=0.25, iterations=7, step_rule=job_pb2.STEP_RULE_LINE_SEARCH,
                                         rel_gap=0.01, report_every=3),
        warm_start=job_pb2.WarmStart(method=job_pb2.METHOD_MAGNITUDE, ria_exponent=0.75),
        refine=job_pb2.Refine(swaps=True, keep_fixed=False),
        sparsegpt=job_pb2.SparseGptOptions(damping=0.02, block_size=64),
    )
    expected.deadline.FromMilliseconds(1500)
    expected.result_ttl.FromSeconds(60)
    assert message == expected


def test_a_preset_leaves_the_method_to_the_server():
    message = spec.make_spec({"preset": "best", "sparsity": 0.6, "joint_damping": 0.01})
    expected = job_pb2.JobSpec(preset=job_pb2.PRESET_BEST, return_pruned_weight=True,
                               refine=job_pb2.Refine(joint_damping=0.01))
    expected.pattern.per_row.sparsity = 0.6
    assert message == expected
    chosen = spec.make_spec({"preset": "fast", "method": "alps", "sparsity": 0.6, "joint": True})
    assert (chosen.method, chosen.refine.joint, chosen.return_pruned_weight) == (job_pb2.METHOD_ALPS, True, True)


@pytest.mark.parametrize(
    ("options", "returned"),
    [
        ({"method": "SparseGPT"}, True),
        ({"method": "ALPS"}, True),
        ({"preset": "Best"}, True),
        ({"preset": "best", "joint": False}, True),  # that is ALPS
        ({"preset": "best", "joint": False, "method": "wanda"}, False),
        ({"preset": "best", "method": "wanda"}, True),  # the preset's joint search
        ({"method": "Wanda", "reconstruct": True}, True),
        ({"method": "ria", "joint": True}, True),
        ({"preset": "Balanced"}, False),
        ({"method": "SPARSEFW"}, False),
        ({"method": "alps", "return_weight": False}, False),
    ],
)
def test_new_weights_are_asked_for_however_names_are_written(options, returned):
    assert spec.make_spec({"sparsity": 0.6, **options}).return_pruned_weight is returned


def test_new_weights_of_any_point_of_a_sweep_are_asked_for():
    message = spec.make_spec({"sparsity": 0.6, "method": "wanda", "joint": False})
    for setting, made in [({"method": "ALPS"}, True), ({"method": "ria"}, False), ({"joint": True}, True),
                          ({"reconstruct": True}, True), ({"reconstruct": False}, False)]:
        message.sweep.CopyFrom(spec.make_points({"sparsity": 0.6}, [{}, setting]))
        assert spec.updates_weights(message) is made, setting


def test_what_is_not_given_is_left_to_the_server():
    message = spec.make_spec({"sparsity": 0.6})
    expected = job_pb2.JobSpec()
    expected.pattern.per_row.sparsity = 0.6
    assert message == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": 0.5, "methud": "ria"}, "methud"),
        ({"sparsity": 0.5, "method": "best"}, '"sparsefw"'),
        ({}, "needs sparsity"),
        ({"pattern": "2:4", "sparsity": 0.6}, "own sparsity, 0.5"),
        ({"pattern": "2:x"}, "K:N"),
        ({"pattern": "rows", "sparsity": 0.5}, "per-row"),
        ({"sparsity": 0.5, "iterations": "many"}, "iterations must be a whole number"),
        ({"sparsity": 0.5, "iterations": 2**70}, "a whole number of 64 bits; got 118"),
        ({"sparsity": 0.5, "deadline": -1}, "deadline"),
        ({"sparsity": "half"}, "sparsity must be a number; got 'half'"),
        ({"sparsity": 0.5, "step_rule": "exact"}, '"line-search"'),
    ],
)
def test_options_that_no_message_holds_are_refused(options, words):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        spec.make_spec(options)
    assert words in str(refused.value)


def test_lists_of_a_sweep_are_combined_the_last_fastest():
    options, settings = spec.split_sweep(
        {"sparsity": [0.5, 0.6], "alpha": (0, 0.9), "iterations": 5, "pattern": "unstructured"}, None)
    assert settings == [{"sparsity": sparsity, "alpha": alpha, "pattern": "unstructured"}
                        for sparsity in (0.5, 0.6) for alpha in (0, 0.9)]
    assert options == {"iterations": 5, "pattern": "unstructured", "sparsity": 0.5}
    points = spec.make_points(options, settings).points
    assert points[3].pattern.unstructured.sparsity == 0.6
    assert points[3].alpha == 0.9
    assert not points[3].HasField("swaps")


def test_patterns_of_a_sweep_take_the_jobs_sparsity_where_they_need_one():
    options, settings = spec.split_sweep({"pattern": ["2:4", "per-row"], "sparsity": 0.7}, None)
    points = spec.make_points(options, settings).points
    assert (points[0].pattern.nm.keep, points[0].pattern.nm.group) == (2, 4)
    assert points[1].pattern.per_row.sparsity == 0.7


@pytest.mark.parametrize(("options", "points", "patterns"), [
    ({"sparsity": 0.6}, [{"pattern": "2:4"}, {"alpha": 0.5}], ["2:4", "per-row 0.6"]),
    ({"sparsity": 0.6}, [{"sparsity": 0.5}, {"alpha": 0.5}], ["per-row 0.5", "per-row 0.6"]),
    ({"sparsity": 0.6, "pattern": "unstructured"}, [{"pattern": "per-row"}, {"sparsity": 0.7}],
     ["per-row 0.6", "unstructured 0.7"]),
    ({"pattern": "2:4"}, [{"pattern": "unstructured", "sparsity": 0.5}, {"alpha": 0.5}],
     ["unstructured 0.5", "2:4"]),
    ({"sparsity": 0.6}, [{"alpha": 0.5}, {"pattern": "2:4"}], ["per-row 0.6", "2:4"]),
])
def test_points_take_what_they_lack_from_the_job_and_not_from_the_first_point(options, points, patterns):
    job, settings = spec.split_sweep(options, points)
    message = spec.make_spec(job)
    found = [point.pattern if point.HasField("pattern") else message.pattern
             for point in spec.make_points(job, settings).points]
    names = [("2:4",), *((kind, share) for kind in ("per-row", "unstructured") for share in (0.5, 0.6, 0.7))]
    known = {" ".join(map(str, name)): spec.make_pattern(*name, *[None] * (2 - len(name))) for name in names}
    assert found == [known[name] for name in patterns]


@pytest.mark.parametrize("points", [[{"pattern": "2:4"}, {"alpha": 0.5}], [{"sparsity": 0.5}, {"alpha": 0.5}]])
def test_a_point_without_a_pattern_is_refused_where_the_job_has_none(points):
    with pytest.raises(sparsefw.InvalidArgument, match='pattern "per-row" needs sparsity'):
        spec.split_sweep({}, points)


@pytest.mark.parametrize("options", [{"sparsity": 0.5}, {"iterations": [1, 2], "sparsity": 0.5},
                                     {"alpha": [0.1] * 257, "sparsity": 0.5}])
def test_what_is_no_sweep_is_refused(options):
    with pytest.raises(sparsefw.InvalidArgument):
        spec.split_sweep(options, None)

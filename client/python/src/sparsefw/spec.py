"""The options of a job, as keyword arguments."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import numpy as np
from google.protobuf import duration_pb2
from google.protobuf.descriptor import FieldDescriptor

from sparsefw._enums import number_of, short_name
from sparsefw.errors import invalid
from sparsefw.v1 import job_pb2


class SolveOptions(TypedDict, total=False):
    """Those of JobOptions that prune_model takes for every layer alike."""

    preset: str
    alpha: float
    iterations: int
    step_rule: str
    rel_gap: float
    report_every: int
    warm_start: Any
    ria_exponent: float
    shrinkage: float
    swaps: bool
    keep_fixed: bool
    reconstruct: bool
    joint: bool
    joint_damping: float
    joint_excluded: float
    damping: float
    block_size: int
    precision: str
    priority: int


class JobOptions(SolveOptions, total=False):
    """What `submit`, `prune` and `sweep` take. What is not given has the server's default.

    preset:       "paper", "fast", "balanced" or "best": settings for what is not given. Without a preset,
                  a method and an option of one it is "balanced"; else the values below, those of "paper".
    method:       "sparsefw", "sparsegpt", "alps", "ria", "wanda" or "magnitude".
    pattern:      "per-row" (default), "unstructured", or "K:N": of every N consecutive inputs keep K.
    sparsity:     share of the weights removed, [0, 1]; with "per-row" and "unstructured".
    alpha:        share of the kept weights that is fixed from the start, [0, 1]; 0.9, `joint` of "K:N": 0.4.
    iterations:   Frank-Wolfe steps; 2000.
    step_rule:    "open-loop" (default), "line-search" or "auto".
    rel_gap:      stop once the gap is at most this share of the relaxed loss; 0: never ("auto": 2e-3).
    report_every: iterations between reports; 100.
    warm_start:   "wanda" (default), "ria", "magnitude", or an array or tensor [d_out, d_in]: of bool a mask
                  with the exact counts, of float32 scores, higher is kept.
    ria_exponent: RIA's exponent of the activation norm; 0.5.
    shrinkage:    reduces the correlations of the inputs in G by this share, [0, 1); 0. Losses are of the G so
                  shrunk, but for `Losses.unshrunk`.
    swaps:        exchange kept and removed weights while that lowers the loss; False.
    keep_fixed:   swaps leave the fixed weights alone; True.
    reconstruct:  recompute the kept weights; False.
    joint:        find mask and weights together, from the method's result; False.
    joint_damping: of the joint search, share of the mean diagonal, [0, 1]; 0.001.
    joint_excluded: the share of a row's columns that the joint search leaves out until its end, the removed
                  weights whose return would gain least, [0, 1): as many may return as may be removed;
                  "K:N": 0.25.
    damping:      of SparseGPT, share of the mean diagonal; 0.01.
    block_size:   of SparseGPT, columns whose mask is chosen together; 128.
    return_weight: also return the pruned weight; True where weights are updated, else False.
    device:       "auto" (default), "cpu", "reference", "cuda", "cuda:N".
    precision:    of dense products on a CUDA device: "fp32" (default), "tf32", "bf16".
    priority:     higher runs first, [-100, 100]; 0.
    deadline:     seconds from acceptance, after which the best mask so far is the result; none.
    result_ttl:   seconds that job and results are kept after the end; a day.
    labels:       kept with the job.
    """

    method: str
    pattern: str
    sparsity: float
    return_weight: bool
    device: str
    deadline: float
    result_ttl: float
    labels: Mapping[str, str]


SWEEP_KEYS: Final = ("method", "pattern", "sparsity", "alpha", "swaps", "reconstruct", "joint")
MOST_POINTS: Final = 256
# The range of google.protobuf.Duration, 10 000 years, less what rounding may add.
_MOST_SECONDS: Final = 3.15e11


def make_pattern(pattern: str | None, sparsity: float | None) -> job_pb2.Pattern:
    """The pattern that "per-row", "unstructured" or "K:N" names."""
    message = job_pb2.Pattern()
    if pattern is not None and not isinstance(pattern, str):
        raise invalid(f'pattern must be "per-row", "unstructured" or "K:N"; got {_shown(pattern)}')
    share = None if sparsity is None else _number("sparsity", sparsity)
    kind = (pattern or "per-row").replace("_", "-")
    keep, colon, group = kind.partition(":")
    if colon:
        if not (keep.isdecimal() and group.isdecimal()):
            raise invalid(f'pattern must be K:N with whole numbers; got "{kind}"')
        own = 1 - int(keep) / int(group) if int(group) else 0.0
        if share is not None and not abs(share - own) <= 1e-9:
            raise invalid(f'pattern "{kind}" has its own sparsity, {own:g}; got sparsity={sparsity}')
        # Beyond int32 protobuf would raise an error of its own; the server's says what the rule is.
        message.nm.keep, message.nm.group = (min(int(text), 2**31 - 1) for text in (keep, group))
        return message
    if kind not in ("per-row", "unstructured"):
        raise invalid(f'pattern must be "per-row", "unstructured" or "K:N"; got "{pattern}"')
    if share is None:
        raise invalid(f'pattern "{kind}" needs sparsity, the share to remove')
    (message.per_row if kind == "per-row" else message.unstructured).sparsity = share
    return message


def _shown(value: object) -> str:
    """The value in a message, and of a long one the ends."""
    return reprlib.repr(value)


def _number(name: str, value: Any) -> float:
    try:
        if _is_truth(value) or isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise invalid(f"{name} must be a number; got {_shown(value)}") from None


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _truth(name: str, value: Any) -> bool:
    """A text such as "false" would be true, and a number that is neither 0 nor 1 says nothing."""
    if _is_truth(value) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    raise invalid(f"{name} must be True or False; got {_shown(value)}")


def _duration(name: str, value: Any) -> duration_pb2.Duration:
    seconds = math.nan if isinstance(value, str) or _is_truth(value) else _number(name, value)
    if not 0 <= seconds <= _MOST_SECONDS:
        raise invalid(f"{name} must be seconds in [0, {_MOST_SECONDS:g}]; got {_shown(value)}")
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def updates_weights(spec: job_pb2.JobSpec) -> bool:
    """The job, or a point of its sweep, makes weights that are not W's."""
    best = spec.preset == job_pb2.PRESET_BEST  # ALPS with refine.joint, where nothing else is said
    method = spec.method or (job_pb2.METHOD_ALPS if best else job_pb2.METHOD_SPARSEFW)
    joint = spec.refine.joint if spec.refine.HasField("joint") else best
    return any(
        (point.method or method) in (job_pb2.METHOD_SPARSEGPT, job_pb2.METHOD_ALPS)
        or (point.joint if point.HasField("joint") else joint)
        or (point.reconstruct if point.HasField("reconstruct") else spec.reconstruct)
        for point in spec.sweep.points or [job_pb2.SweepPoint()]
    )


def make_spec(options: JobOptions) -> job_pb2.JobSpec:
    """Without the names of the tensors, and without a warm start that is an array.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): an unknown option or name, or a value that no message holds.
            The server checks ranges.
    """
    unknown = set(options) - set(JobOptions.__annotations__)
    if unknown:
        raise invalid(f"there is no option {', '.join(sorted(unknown))}")
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    try:
        return _spec_of(given)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, invalid("").__class__):
            raise
        raise invalid(f"an option has a value that cannot be sent: {error}") from None


# Options that are no single field of a message.
_COMPOSED: Final = ("pattern", "sparsity", "warm_start", "labels", "deadline", "result_ttl", "return_weight")
_RENAMED: Final = {"precision": "product_precision"}
# What a field takes, in words.
_RULES: Final = {
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits",
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_STRING: "a text",
}


def _set_option(spec: job_pb2.JobSpec, name: str, value: Any) -> None:
    """Sets the field of this name, in the spec or in one of its parts."""
    wire = _RENAMED.get(name, name)
    for message in (spec, spec.sparsefw, spec.refine, spec.sparsegpt, spec.warm_start):
        field = message.DESCRIPTOR.fields_by_name.get(wire)
        if field is None:
            continue
        if field.enum_type is not None:
            setattr(message, wire, number_of(getattr(job_pb2, field.enum_type.name), value, name))
            return
        if field.type == field.TYPE_BOOL:
            setattr(message, wire, _truth(name, value))
            return
        try:
            if _is_truth(value):  # protobuf takes them for 0 and 1
                raise TypeError
            setattr(message, wire, value)
        except (TypeError, ValueError, OverflowError):
            raise invalid(f"{name} must be {_RULES[field.cpp_type]}; got {_shown(value)}") from None
        return
    raise AssertionError(f"no message has a field for {name}")


def _set_labels(spec: job_pb2.JobSpec, labels: Any) -> None:
    if not isinstance(labels, Mapping):
        raise invalid(f'labels must be texts by name, such as {{"layer": "7.q"}}; got {_shown(labels)}')
    for name, text in labels.items():
        try:
            spec.labels[name] = text
        except (TypeError, ValueError):
            raise invalid(f"labels must be texts by name; got {_shown({name: text})}") from None


def _spec_of(given: dict[str, Any]) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(pattern=make_pattern(given.get("pattern"), given.get("sparsity")))
    _set_labels(spec, given.get("labels", {}))
    for name, value in given.items():
        if name not in _COMPOSED:
            _set_option(spec, name, value)
    if isinstance(given.get("warm_start"), str):
        spec.warm_start.method = number_of(job_pb2.Method, given["warm_start"], "warm_start")
    for name in ("deadline", "result_ttl"):
        if name in given:
            getattr(spec, name).CopyFrom(_duration(name, given[name]))
    # From the finished message: names come in several spellings.
    spec.return_pruned_weight = _truth("return_weight", given.get("return_weight", updates_weights(spec)))
    return spec


def split_sweep(
    options: Mapping[str, Any], points: Sequence[Mapping[str, Any]] | None
) -> tuple[JobOptions, list[dict[str, Any]]]:
    """(options of the job, settings of its points): every combination of the options that are lists.

    The last one varies fastest.
    """
    axes = {
        key: list(value)
        for key, value in options.items()
        if isinstance(value, list | tuple | range) or type(value).__name__ == "ndarray"
        if key != "warm_start"
    }
    wrong = [key for key in axes if key not in SWEEP_KEYS]
    if wrong:
        raise invalid(f"a sweep can vary {', '.join(SWEEP_KEYS)}; got a list of {wrong[0]}")
    if points is not None:
        if axes:
            raise invalid("a sweep takes points or lists, not both")
        settings = [dict(point) for point in points]
    else:
        if not axes:
            raise invalid(f"a sweep needs points, or a list for one of {', '.join(SWEEP_KEYS)}")
        settings = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if not 1 <= len(settings) <= MOST_POINTS:
        raise invalid(f"a sweep has 1 to {MOST_POINTS} points; got {len(settings)}")
    job: dict[str, Any] = {key: value for key, value in options.items() if key not in axes}
    if settings[0].get("pattern") is not None or settings[0].get("sparsity") is not None:
        for setting in settings:
            _complete(setting, job)
        # The job may have no pattern of its own, and the server asks for one; no point takes it over.
        job = _with_pattern(job, settings[0])
    return job, settings  # type: ignore[return-value]


def _complete(setting: dict[str, Any], job: Mapping[str, Any]) -> None:
    """Writes into the point what it takes from the job's own pattern and sparsity."""
    merged = _with_pattern(job, setting)
    setting["pattern"] = merged.get("pattern") or "per-row"
    if merged.get("sparsity") is not None:
        setting["sparsity"] = merged["sparsity"]
    else:
        make_pattern(setting["pattern"], None)  # raises where the pattern needs a sparsity


def _with_pattern(options: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: setting[key] for key in ("pattern", "sparsity") if setting.get(key) is not None}
    merged = {**options, **own}
    if ":" in str(own.get("pattern", "")) and "sparsity" not in own:
        merged.pop("sparsity", None)
    return merged


def make_points(options: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> job_pb2.Sweep:
    """The points of a sweep whose job has these options."""
    sweep = job_pb2.Sweep()
    for setting in settings:
        wrong = sorted(set(setting) - set(SWEEP_KEYS))
        if wrong:
            raise invalid(f"a sweep can vary {', '.join(SWEEP_KEYS)}; got {wrong[0]}")
        point = sweep.points.add()
        if setting.get("method") is not None:
            point.method = number_of(job_pb2.Method, setting["method"], "method")
        if setting.get("pattern") is not None or setting.get("sparsity") is not None:
            merged = _with_pattern(options, setting)
            point.pattern.CopyFrom(make_pattern(merged.get("pattern"), merged.get("sparsity")))
        for name in ("alpha", "swaps", "reconstruct", "joint"):
            if setting.get(name) is not None:
                value = setting[name]
                setattr(point, name, _number(name, value) if name == "alpha" else _truth(name, value))
    return sweep


def describe_point(point: job_pb2.SweepPoint) -> dict[str, Any]:
    """The setting of a point of a result."""
    pattern = point.pattern
    kind = pattern.WhichOneof("kind")
    setting: dict[str, Any] = {"method": short_name(job_pb2.Method, point.method).lower()}
    if kind == "nm":
        setting.update(pattern=f"{pattern.nm.keep}:{pattern.nm.group}", sparsity=None)
        if pattern.nm.group:
            setting["sparsity"] = 1 - pattern.nm.keep / pattern.nm.group
    elif kind:
        setting.update(pattern=kind.replace("_", "-"), sparsity=getattr(pattern, kind).sparsity)
    for name in ("alpha", "swaps", "reconstruct", "joint"):
        setting[name] = getattr(point, name) if point.HasField(name) else None
    return setting

"""The arguments of a run, checked."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparsefw import spec
from sparsefw._inputs import hub
from sparsefw.errors import invalid
from sparsefw.hf import allocate
from sparsefw.hf.data import LEAST_LENGTH
from sparsefw.hf.presets import DEFAULT_PRESET, PRESETS, REFINED_JOB, ModelPreset
from sparsefw.hf.training.distill import Distillation
from sparsefw.hf.training.refine import BlockRefinement
from sparsefw.hf.training.steps import resolve
from sparsefw.hf.values import is_number, plain, shown, truth, whole

# The part of JobOptions that the pipeline itself sets.
_OWN: Final = ("labels", "return_weight", "result_ttl", "deadline")
SAMPLES: Final = 128
SEQUENCE_LENGTH: Final = 2048
# What llm-compressor's oneshot calls them.
_ALIASES: Final = {
    "num_calibration_samples": ("samples", SAMPLES),
    "max_seq_length": ("sequence_length", SEQUENCE_LENGTH),
}


# Whole numbers: the least, and what they count.
_WHOLE: Final = {
    "samples": (1, ""),
    "sequence_length": (LEAST_LENGTH, ""),
    "gram_memory": (1, "bytes"),
    "split_above": (1, "weights"),
}


class ModelOptions(spec.SolveOptions, total=False):
    """What prune_model takes beside its own arguments: job_device is the device of the jobs."""

    job_device: str
    num_calibration_samples: int
    max_seq_length: int


# What says nothing about how a matrix is pruned.
_OF_NO_METHOD: Final = {*_OWN, "device", "precision", "priority"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """See `prune_model`."""

    sparsity: float | None
    pattern: str
    method: str | None
    ignore: tuple[str, ...]
    routers: bool
    propagate: bool
    samples: int
    sequence_length: int
    allocation: str | Mapping[str, float]
    allocation_bound: float | None
    gram: str
    gram_memory: int
    split_above: int
    options: Mapping[str, Any]
    refine_blocks: BlockRefinement | Mapping[str, Any] | bool | None = None
    distill: Distillation | Mapping[str, Any] | bool | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        options = {key: value for key, value in self.options.items() if value is not None}
        self._take_aliases(options)
        if "job_device" in options:
            options["device"] = options.pop("job_device")
        object.__setattr__(self, "options", options)
        # NumPy's and PyTorch's numbers are not JSON's.
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        self._check_types()
        wrong = [name for name in _OWN if name in self.options]
        if wrong:
            raise invalid(f"prune_model sets {wrong[0]} itself")
        if "warm_start" in self.options and not isinstance(self.options["warm_start"], str):
            raise invalid("warm_start must be the name of a method: every layer has its own mask")
        preset = self.options.get("preset")
        if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
            raise invalid(f"preset must be one of {', '.join(PRESETS)}; got {preset}")
        _ = self.distillation  # checked before anything is read
        if self.refinement is not None and not self.propagate:
            raise invalid(
                f"{self.refined_by} needs propagate=True: refinement makes up for the pruned blocks before"
            )
        allocate.check(self.allocation, self.pattern, self.sparsity)
        # Whatever no job would take is refused before anything is read.
        spec.make_spec(self.job_options(0.5 if self.sparsity is None else self.sparsity))
        try:
            json.dumps(dict(self.options))
        except (TypeError, ValueError) as error:
            raise invalid(f"an option has a value that cannot be kept: {error}") from None

    def _check_types(self) -> None:
        """What else would fail late, without a word of the argument, or count as something else."""
        for name, (least, unit) in _WHOLE.items():
            whole(name, getattr(self, name), least, unit)
        if self.seed is not None and (not isinstance(self.seed, int) or isinstance(self.seed, bool)):
            raise invalid(f"seed must be a whole number or None; got {shown(self.seed)}")
        for name in ("routers", "propagate"):
            truth(name, getattr(self, name))
        if not isinstance(self.pattern, str):
            raise invalid(f'pattern must be "per-row", "unstructured" or "K:N"; got {shown(self.pattern)}')
        if self.gram not in ("auto", "client", "server"):
            raise invalid(f'gram must be "auto", "client" or "server"; got {shown(self.gram)}')
        bound = self.allocation_bound
        if bound is not None and not (is_number(bound) and 0 < bound <= 1):
            raise invalid(f"allocation_bound must be a number in (0, 1]; got {shown(bound)}")
        for name, value in self.options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise invalid(f"{name} must be finite; got {value}")

    def _take_aliases(self, options: dict[str, Any]) -> None:
        for alias, (name, usual) in _ALIASES.items():
            if alias not in options:
                continue
            if getattr(self, name) != usual:
                raise invalid(f"{alias} is another name for {name}; give one of them")
            least, unit = _WHOLE[name]
            object.__setattr__(self, name, whole(alias, options.pop(alias), least, unit))

    @property
    def preset(self) -> str | None:
        """The model preset: the one that was asked for. Where neither a preset nor a method, an option of one
        or steps of training are named, it is the one that measurements recommend.
        """
        steps = (self.method, self.refine_blocks, self.distill)
        nothing = all(step is None for step in steps) and set(self.options) <= _OF_NO_METHOD
        return DEFAULT_PRESET if nothing else self.options.get("preset")

    @property
    def _preset(self) -> ModelPreset | None:
        return PRESETS.get(self.preset or "")

    @property
    def _job_preset(self) -> str | None:
        """The preset of every job."""
        refined = (
            self._preset is not None and self._preset.refinement is not None and self.refinement is not None
        )
        return REFINED_JOB if refined else self.preset

    @property
    def refinement(self) -> BlockRefinement | None:
        """How blocks are refined; None: not at all."""
        of_preset = self._preset.refinement if self._preset else None
        if "preset" not in self.options and not self.propagate:
            of_preset = None  # nobody asked for it, and no block sees the pruned ones before it
        return resolve("refine_blocks", self.refine_blocks, of_preset, BlockRefinement())

    @property
    def refined_by(self) -> str:
        """What asks for refinement, for messages."""
        if self.refine_blocks is None:
            asked = "preset" in self.options
            alone = "refine_blocks=False goes" if asked else f'preset="{self.preset}", refine_blocks=False go'
            return f'preset "{self.preset}" (it refines; {alone} without)'
        return "refine_blocks"

    @property
    def distillation(self) -> Distillation | None:
        """How the model is distilled; None: not at all."""
        of_preset = self._preset.distillation if self._preset else None
        return resolve("distill", self.distill, of_preset, Distillation())

    @property
    def distilled_by(self) -> str:
        """What asks for distillation, for messages."""
        if self.distill is None:
            return f'preset "{self.preset}" (it distils; distill=False goes without)'
        return "distill"

    @property
    def bound(self) -> float:
        """The allocation's bound, see allocate.BOUNDS."""
        if self.allocation_bound is not None:
            return self.allocation_bound
        return allocate.BOUNDS[self.allocation if isinstance(self.allocation, str) else "uniform"]

    def meaning(self) -> dict[str, Any]:
        """What the preset stands for in this version, with refinement and distillation."""
        return {
            "job_preset": self._job_preset,
            "refine_blocks": dataclasses.asdict(self.refinement) if self.refinement else None,
            "distill": dataclasses.asdict(self.distillation) if self.distillation else None,
        }

    def job_options(self, sparsity: float) -> Any:
        """The options for a matrix with this sparsity."""
        options: dict[str, Any] = {**self.options, "pattern": self.pattern}
        if self._job_preset is not None:
            options["preset"] = self._job_preset
        if self.method is not None:  # a preset may choose it
            options["method"] = self.method
        elif self._job_preset is None:  # else a job that names nothing would have a preset of its own
            options["method"] = "sparsefw"
        if ":" not in self.pattern:
            options["sparsity"] = sparsity
        else:
            spec.make_pattern(self.pattern, self.sparsity)  # it has its own: another one is refused
        return options

    def facts(self, model: Any, data: str, samples: Sequence[Any]) -> dict[str, Any]:
        """What decides the outcome, for the manifest and the report."""
        return {
            # 3: the shape of a matrix decides its row parts; Gram sums are added shard by shard. 5: what a
            # distillation keeps.
            "format": 5,
            "model": model,
            "data": data,
            "samples": len(samples),
            "sequence_length": max(int(sample.shape[1]) for sample in samples),
            "sparsity": None if self.sparsity is None else float(self.sparsity),
            "pattern": self.pattern,
            "method": method_name({**self.options, "preset": self.preset, "method": self.method}),
            "options": dict(self.options),
            **self.meaning(),
            "ignore": list(self.ignore),
            "routers": self.routers,
            "propagate": self.propagate,
            "allocation": allocate.describe(self.allocation),
            "allocation_bound": self.bound,
            "gram": self.gram,
            # A row part has steps of its own.
            "split_above": self.split_above,
        }


def method_name(options: Mapping[str, Any]) -> str:
    """For people: the method, or the preset that chooses it."""
    preset = options.get("preset")
    return str(options.get("method") or (f"preset {preset}" if preset else "sparsefw"))


def rules_of(ignore: Any) -> tuple[str, ...]:
    """The regular expressions of the argument `ignore`: one text is one, not one a letter.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): it holds something else.
    """
    rules = (ignore,) if isinstance(ignore, str) else ignore
    if not isinstance(rules, Iterable):
        raise invalid(f"ignore must be regular expressions, or one; got {shown(ignore)}")
    rules = tuple(rules)
    for rule in rules:
        if not isinstance(rule, str):
            raise invalid(f"ignore must be regular expressions, or one; got {shown(rule)}")
    return rules


def folder_of(model: Any) -> Path | None:
    """Where `model` is a folder, or a name on the hub; None: it is the model."""
    return hub.local_folder(model)

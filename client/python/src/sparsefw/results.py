"""What jobs report and return."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import grpc
import numpy.typing as npt

from sparsefw import arrays, errors
from sparsefw._enums import short_name
from sparsefw._losses import Losses
from sparsefw._text import printable
from sparsefw.arrays import BoolArray
from sparsefw.errors import Error
from sparsefw.v1 import job_pb2


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds: waiting, reading the tensors, solving."""

    queue: float
    load: float
    solve: float


@dataclasses.dataclass(frozen=True)
class Joint:
    """What the search of mask and weights together (`joint=True`) did.

    Attributes:
        start_loss: of the mask it started from with the weights solved on it, in float64:
                    `losses.reconstructed` never exceeds it.
        reduction:  1 - losses.reconstructed / start_loss.
        exchanges:  kept weights that gave way to removed ones.
        converged:  no exchange of the weights that took part lowers the loss; False where a deadline or
                    a cancel cut the search short.
    """

    start_loss: float
    reduction: float
    exchanges: int
    converged: bool

    @classmethod
    def of(cls, message: job_pb2.JointOutcome) -> Joint:
        """From the wire."""
        return cls(
            start_loss=message.start_loss,
            reduction=message.reduction,
            exchanges=message.exchanges,
            converged=message.converged,
        )


@dataclasses.dataclass(frozen=True)
class Screening:
    """Iterations of SparseFW on the CPU that looked only at weights that could still change.

    Attributes:
        epochs:       stretches of such iterations, between two looks at all weights.
        iterations:   taken in them, out of `Result.iterations`.
        active_share: of the weights that they looked at, on average, [0, 1].
    """

    epochs: int
    iterations: int
    active_share: float

    @classmethod
    def of(cls, message: job_pb2.Screening) -> Screening:
        """From the wire."""
        return cls(epochs=message.epochs, iterations=message.iterations, active_share=message.active_share)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a running job. Losses as in `Losses`; `elapsed` and `remaining` in seconds.

    Attributes:
        gap:                at least relaxed_loss minus the lower bound; 0 when the iterate is optimal.
        threshold_residual: distance of the iterate from its rounding, divided by the weights kept.
        sweep_point:        of a sweep, which point is running.
    """

    iteration: int
    iterations: int
    relaxed_loss: float
    rounded_loss: float
    best_loss: float
    warm_start_loss: float
    gap: float
    step_size: float
    threshold_residual: float
    swaps: int
    sweep_point: int
    elapsed: float
    remaining: float

    @property
    def reduction(self) -> float:
        """1 - best_loss / warm_start_loss; 0 before there is a loss."""
        return 1 - self.best_loss / self.warm_start_loss if self.warm_start_loss > 0 else 0.0

    @classmethod
    def of(cls, message: job_pb2.Progress) -> Progress:
        """From the wire."""
        return cls(
            iteration=message.iteration,
            iterations=message.iterations_total,
            relaxed_loss=message.relaxed_loss,
            rounded_loss=message.rounded_loss,
            best_loss=message.best_loss,
            warm_start_loss=message.warm_start_loss,
            gap=message.gap,
            step_size=message.step_size,
            threshold_residual=message.threshold_residual,
            swaps=message.swaps,
            sweep_point=message.sweep_point,
            elapsed=seconds(message.elapsed),
            remaining=seconds(message.remaining_estimate),
        )


@dataclasses.dataclass(frozen=True)
class Event:
    """One event of a watch.

    Attributes:
        kind:     "SNAPSHOT" (the first), "STATE_CHANGE" (none is left out), "PROGRESS" (the latest) or
                  "HEARTBEAT".
        state:    "QUEUED", "RUNNING", "SUCCEEDED", "FAILED" or "CANCELLED".
        revision: grows with every change; `Job.events(after_revision=...)` goes on from there.
        progress: None before the job runs.
        queue_position: jobs ahead of it while QUEUED.
        message:  the event as it came.
    """

    kind: str
    state: str
    revision: int
    progress: Progress | None
    queue_position: int
    message: job_pb2.JobEvent = dataclasses.field(repr=False)

    @classmethod
    def of(cls, message: job_pb2.JobEvent) -> Event:
        """From the wire."""
        job = message.job
        return cls(
            kind=short_name(job_pb2.JobEvent.Kind, message.kind),
            state=short_name(job_pb2.JobState, job.state),
            revision=job.revision,
            progress=Progress.of(job.progress) if job.HasField("progress") else None,
            queue_position=job.queue_position,
            message=message,
        )

    @property
    def ended(self) -> bool:
        """It is the last event."""
        return self.state in ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What a job found.

    Attributes:
        job:         its name.
        state:       "SUCCEEDED", or "CANCELLED" with the best mask so far.
        shape:       (d_out, d_in).
        kept:        weights that the mask keeps.
        losses:      see Losses.
        relative_reduction: 1 - final / warm_start; of SparseGPT, ALPS and the joint search
                     1 - reconstructed / warm_start.
        iterations:  steps run.
        stop_reason: "ITERATIONS", "GAP", "DEADLINE" or "CANCELLED".
        candidate:   which mask won: "WARM_START", "ROUNDED", "REFINED" or "JOINT".
        swaps:       exchanges taken by `swaps=True`.
        drift:       largest relative difference between incremental and newly computed products.
        damping:     what SparseGPT's factorisation needed, of ALPS 0.01; None of other methods.
        joint:       see Joint; None where it was not asked for or there was no time for it.
        screening:   see Screening; None where no iteration was screened.
        device:      "cpu", "cuda:0".
        preset:      that the options were taken from, also where nothing was asked for; "": none.
        preset_overrides: options that were given beside it and win over it.
        timings:     seconds.
        mask_tensor, weight_tensor: names of the tensors on the server; "" where there is none.
        message:     the result as it came, with fields that are newer than this class.
    """

    job: str
    state: str
    shape: tuple[int, int]
    kept: int
    losses: Losses
    relative_reduction: float
    iterations: int
    stop_reason: str
    candidate: str
    swaps: int
    drift: float
    damping: float | None
    joint: Joint | None
    screening: Screening | None
    device: str
    preset: str
    preset_overrides: tuple[str, ...]
    timings: Timings
    mask_tensor: str
    weight_tensor: str
    message: job_pb2.JobResult = dataclasses.field(repr=False)
    _mask: bytearray | None = dataclasses.field(repr=False, default=None)
    _weight: tuple[bytearray, str] | None = dataclasses.field(repr=False, default=None)

    @functools.cached_property
    def mask(self) -> BoolArray:
        """Bool [d_out, d_in], True = keep."""
        return arrays.unpack_mask(self.mask_bits, self.shape)

    @property
    def mask_bits(self) -> bytearray:
        """The mask as it travels: a bit a weight, rows padded to bytes, least significant bit first."""
        if self._mask is None:
            raise _not_kept(self.job, "mask")
        return self._mask

    @property
    def has_mask(self) -> bool:
        """A point of a sweep has one only where the sweep kept it."""
        return self._mask is not None

    @property
    def has_weight(self) -> bool:
        """There are pruned weights: they were asked for, or updated."""
        return self._weight is not None

    def check_weight(self) -> None:
        """Raises FailedPrecondition where the losses are of new weights that are not here: they were not
        asked for (return_weight=False), or the server had no room for them.
        """
        if self.losses.reconstructed is not None and not self.has_weight:
            raise errors.refuse(
                grpc.StatusCode.FAILED_PRECONDITION,
                "CLIENT_ARGUMENT",
                f"{self.job} updated the weights (loss {self.losses.reconstructed:.6g}) and returned none, "
                f"only a mask (loss {self.losses.final:.6g} with the old ones): return_weight must not be "
                "False, and the server needs room for them",
            )

    @functools.cached_property
    def weight(self) -> npt.NDArray[Any]:
        """Pruned weight [d_out, d_in] in the dtype of W.

        bfloat16 comes as ml_dtypes.bfloat16 where that package is installed, else as float32 of the
        same values.
        """
        return arrays.from_bytes(*self.weight_bytes, self.shape)

    @property
    def weight_bytes(self) -> tuple[bytearray, str]:
        """(bytes, dtype) of the pruned weight, row-major and little-endian."""
        if self._weight is None:
            raise _not_kept(self.job, "pruned weight")
        return self._weight

    def torch_mask(self) -> Any:
        """The mask as a torch.Tensor of bool on the CPU."""
        return arrays.torch_from_bytes(self.mask_bits, "bool", self.shape)

    def torch_weight(self) -> Any:
        """The pruned weight as a torch.Tensor on the CPU, in the dtype of W, bfloat16 included."""
        return arrays.torch_from_bytes(*self.weight_bytes, self.shape)

    @property
    def sparsity(self) -> float:
        """Share of the weights that are removed."""
        return 1 - self.kept / (self.shape[0] * self.shape[1])

    @property
    def loss(self) -> float:
        """The loss of what is returned, as a share of pruning everything, [0, 1]; with G itself."""
        unshrunk = self.losses.unshrunk
        if unshrunk is not None:
            return unshrunk.result / (unshrunk.full or 1.0)
        return self.losses.result / (self.losses.full or 1.0)

    @property
    def certificate(self) -> float:
        """At least this share of `losses.final` is unavoidable for a mask with the same fixed weights:
        lower_bound / final, 1 where it is optimal.
        """
        return self.losses.lower_bound / self.losses.final if self.losses.final > 0 else 1.0

    def __repr__(self) -> str:
        """One line, for a prompt; `print` says more."""
        shares = {"loss": self.loss, "sparsity": self.sparsity}
        if self.losses.lower_bound > 0:
            shares["certificate"] = self.certificate
        said = ", ".join(f"{name} {_per_cent(share)}" for name, share in shares.items())
        return printable(f"<sparsefw.Result of {self.job}, {self.state}, {list(self.shape)}: {said}>")

    def __str__(self) -> str:
        """What every client says first: loss, reduction, certificate, sparsity."""
        losses = self.losses
        note = f"|WX - (M*W)X|^2 / |WX|^2; output energy kept: {_per_cent(1 - self.loss)}"
        if losses.reconstructed is not None:
            note = "|WX - W'X|^2 / |WX|^2 with the updated weights W'"
        if not (losses.full if losses.unshrunk is None else losses.unshrunk.full):
            note = "|WX|^2 is 0: weight or activations are only zeros, so no mask is better than another"
        lines = [("loss", self.loss, note)]
        # With G itself, as the loss.
        full, start, end = losses.full, losses.warm_start, losses.result
        if losses.unshrunk is not None:
            full, start, end = losses.unshrunk.full, losses.unshrunk.warm_start, losses.unshrunk.result
        if start > end:
            note = f"below the warm start ({_per_cent(start / (full or 1.0))})"
            lines.append(("reduction", 1 - end / start, note))
        if losses.lower_bound > 0:
            bound, mask = (_per_cent(loss / losses.full) for loss in (losses.lower_bound, losses.final))
            shrunk = "" if losses.unshrunk is None else " (G shrunk)"
            note = f"unavoidable with these fixed weights: {bound} of {mask}{shrunk}"
            lines.append(("certificate", self.certificate, note))
        weights = self.shape[0] * self.shape[1]
        note = f"{weights - self.kept} of {weights} weights removed; {self.kept} kept"
        lines.append(("sparsity", self.sparsity, note))
        text = "\n".join(f"{name:11}  {_per_cent(share):>10}  {note}" for name, share, note in lines)
        names = ", ".join(self.preset_overrides)
        overrides = f" (overridden by: {names})" if names else ""
        preset = f"preset {self.preset}{overrides}, " if self.preset else ""
        ended = f"{self.job}, {self.state}: {preset}{self.timings.solve:.2f} s on {self.device}"
        return f"{text}\n{printable(ended)}"

    @classmethod
    def of(
        cls,
        job: job_pb2.Job,
        message: job_pb2.JobResult,
        mask: bytearray | None,
        weight: tuple[bytearray, str] | None,
    ) -> Result:
        """From the wire."""
        return cls(
            job=job.name,
            state=short_name(job_pb2.JobState, job.state),
            shape=(job.shape[0], job.shape[1]),
            kept=message.kept_count,
            losses=Losses.of(message.losses),
            relative_reduction=message.relative_reduction,
            iterations=message.iterations,
            stop_reason=short_name(job_pb2.StopReason, message.stop_reason),
            candidate=short_name(job_pb2.Candidate, message.candidate),
            swaps=message.swaps,
            drift=message.drift,
            damping=message.damping if message.HasField("damping") else None,
            joint=Joint.of(message.joint) if message.HasField("joint") else None,
            screening=Screening.of(message.screening) if message.HasField("screening") else None,
            device=message.device,
            preset=short_name(job_pb2.Preset, job.spec.preset).lower() if job.spec.preset else "",
            preset_overrides=tuple(job.preset_overrides),
            timings=Timings(
                queue=seconds(message.timings.queue),
                load=seconds(message.timings.load),
                solve=seconds(message.timings.solve),
            ),
            mask_tensor=message.mask,
            weight_tensor=message.pruned_weight,
            message=message,
            _mask=mask,
            _weight=weight,
        )


def _per_cent(share: float) -> str:
    return f"{100 * share:.3f} %"


def seconds(duration: Any) -> float:
    """The seconds of a google.protobuf.Duration."""
    return float(duration.seconds) + float(duration.nanos) * 1e-9


def _not_kept(job: str, what: str) -> Error:
    ask = "; ask for it: return_weight=True" if what == "pruned weight" else ""
    message = f"{job} has no {what} here{ask}"
    return errors.refuse(grpc.StatusCode.FAILED_PRECONDITION, "CLIENT_ARGUMENT", message)

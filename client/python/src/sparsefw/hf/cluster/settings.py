"""Which part of a Ray cluster a run uses."""

from __future__ import annotations

import dataclasses
from typing import Any

from sparsefw.errors import invalid
from sparsefw.hf.values import plain


@dataclasses.dataclass(frozen=True)
class Ray:
    """A Ray cluster, for `server` of prune_model. Needs `pip install 'sparsefw[ray]'` on every node.

    Attributes:
        address: of the cluster, "HOST:PORT"; None: the running one (RAY_ADDRESS, or that of this machine),
                 else one that Ray starts on this machine. The call must run on a node of the cluster.
        cpus:    cores of a worker, and threads of its solver and of PyTorch; None: those of the smallest
                 node. Nodes have as many workers as fit. With other numbers of threads PyTorch's sums may
                 have other last bits.
        gpus:    GPUs of a worker: 0, or 1 for one of its own.
        workers: in all, at most; None: as many as the nodes have room for, also those that join later.
        max_attempts: a matrix fails once so many of its workers were lost.
    """

    address: str | None = None
    cpus: int | None = None
    gpus: int = 0
    workers: int | None = None
    max_attempts: int = 3

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        if self.address is not None and not (isinstance(self.address, str) and self.address):
            raise invalid(f"address of Ray must be a text, HOST:PORT; got {self.address!r}")
        if self.address is not None and self.address.startswith("ray://"):
            raise invalid(
                "address of Ray must be HOST:PORT of a cluster that this machine belongs to; got "
                f"{self.address}, which is for Ray's client"
            )
        for name, least, most in (("cpus", 1, 4096), ("workers", 1, 65536), ("max_attempts", 1, 1000)):
            _check(name, getattr(self, name), least, most, optional=name != "max_attempts")
        _check("gpus", self.gpus, 0, 1)


def _check(name: str, value: Any, least: int, most: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"{name} of Ray must be a whole number from {least} to {most}; got {value}")

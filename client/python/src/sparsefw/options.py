"""How a client connects, waits and retries."""

from __future__ import annotations

import dataclasses
import math
import numbers
import reprlib
from collections.abc import Callable
from typing import Any, Final

from sparsefw.errors import Error, invalid

# Messages stay at or under 2 MiB, framing included.
MAX_CHUNK_BYTES: Final = (2 << 20) - (4 << 10)


@dataclasses.dataclass(frozen=True)
class Retry:
    """Back-off after broken connections. Times in seconds.

    The n-th wait in a row is drawn from [d/2, d] with d = min(max_backoff, initial_backoff *
    multiplier**n), on top of the delay that the server asked for. After `give_up_after` without
    progress (a byte committed, an event received) the last error is raised.
    """

    initial_backoff: float = 0.1
    max_backoff: float = 2.0
    multiplier: float = 2.0
    give_up_after: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (
            ("initial_backoff", 0),
            ("max_backoff", 0),
            ("multiplier", 1),
            ("give_up_after", 0),
        ):
            _check(name, getattr(self, name), least)


@dataclasses.dataclass(frozen=True)
class Options:
    """Everything about a connection but its address and credentials. Times in seconds.

    Attributes:
        connect_timeout: for the first connection.
        call_timeout:    for one attempt of a call that is not a stream; there are at most three.
        watch_silence:   a watch on which nothing has come for so long, not even a heartbeat, is broken and
                         opened again; at least 0.3. So is a download, of which whole chunks of 1 MiB count: a
                         line below 35 KB/s needs more than these 30 s.
        retry:           see Retry.
        chunk_bytes:     data bytes in a message, [1, 2 MiB - 4 KiB].
        gram_window_bytes: activations of `Client.gram` that are kept until the server has saved their
                         sum; None: by d_in, between 64 and 512 MiB.
        owner:           recorded by the server with every tensor and job.
        on_retry:        called with every error after which another attempt follows, and the wait.
    """

    connect_timeout: float = 5.0
    call_timeout: float = 120.0
    watch_silence: float = 30.0
    retry: Retry = dataclasses.field(default_factory=Retry)
    chunk_bytes: int = 1 << 20
    gram_window_bytes: int | None = None
    owner: str = ""
    on_retry: Callable[[Error, float], None] | None = None

    def __post_init__(self) -> None:
        _check("connect_timeout", self.connect_timeout, 0)
        _check("call_timeout", self.call_timeout, 0)
        _check("watch_silence", self.watch_silence, 0.3)
        _check("chunk_bytes", self.chunk_bytes, 1, MAX_CHUNK_BYTES, int)
        if self.gram_window_bytes is not None:
            _check("gram_window_bytes", self.gram_window_bytes, 1, kind=int)


def _check(
    name: str, value: Any, least: float, most: float = math.inf, kind: type[int | float] = float
) -> None:
    """Raises InvalidArgument unless it is a number of this kind in [least, most]."""
    fits = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    if not fits or isinstance(value, bool) or not least <= value <= most:
        what = "a whole number" if kind is int else "a number"
        bounds = f"in [{least}, {most}]" if most < math.inf else f"of at least {least}"
        raise invalid(f"{name} must be {what} {bounds}; got {reprlib.repr(value)}")

"""Progress bars, by tqdm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

from sparsefw._rpc.upload import TransferProgress
from sparsefw._text import printable
from sparsefw.results import Event


class JobBar:
    """One line: iterations, the reduction of the loss so far, how far they have converged."""

    def __init__(self, name: str) -> None:
        self._bar: Any = tqdm(desc=printable(name), unit="it", leave=True)

    def __call__(self, event: Event) -> None:
        progress = event.progress
        if progress is None:
            self._bar.set_postfix_str(event.state.lower(), refresh=True)
            return
        if progress.iterations:
            self._bar.total = progress.iterations
        self._bar.n = progress.iteration
        notes = [f"-{100 * progress.reduction:.1f} %"] if progress.warm_start_loss > 0 else []
        if progress.relaxed_loss > 0:
            notes.append(f"converged to {100 * progress.gap / progress.relaxed_loss:.2g} %")
        if progress.swaps:
            notes.append(f"{progress.swaps} swaps")
        self._bar.set_postfix_str(", ".join(notes), refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        self._bar.close()


class TransferBar:
    """One line: bytes and their rate."""

    def __init__(self, name: str) -> None:
        self._bar: Any = tqdm(desc=printable(name), unit="B", unit_scale=True, unit_divisor=1024, leave=True)

    def __call__(self, done: int, total: int) -> None:
        if total:
            self._bar.total = total
        self._bar.n = done
        self._bar.update(0)

    def close(self) -> None:
        self._bar.close()


def job_observer(
    progress: bool | Callable[[Event], None], name: str
) -> tuple[Callable[[Event], None] | None, Callable[[], None]]:
    """(called with every event, called at the end)."""
    if progress is True:
        bar = JobBar(name)
        return bar, bar.close
    return progress or None, lambda: None


def transfer_observer(
    progress: bool | TransferProgress, name: str
) -> tuple[TransferProgress | None, Callable[[], None]]:
    """(called with every chunk, called at the end)."""
    if progress is True:
        bar = TransferBar(name)
        return bar, bar.close
    return progress or None, lambda: None

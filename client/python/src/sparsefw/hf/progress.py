"""One progress bar over all matrices."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm

from sparsefw._text import printable
from sparsefw.hf.report import layer_type
from sparsefw.results import Event


class Progress:
    """Counts matrices; shows block, the layer that reported last, and its reduction so far."""

    def __init__(self, total: int, blocks: int, shown: bool, what: str = "") -> None:
        """`what`: is pruned, where it is not all of the model."""
        self._blocks, self._what, self._place = blocks, f"{what}, " if what else "", ""
        self._bar: Any = tqdm(total=total, desc="pruning", unit="matrix", disable=not shown)

    def place(self, what: str) -> None:
        """Where the work is done; shown from the next stage on."""
        self._place = f", {what}" if what else ""

    def wait(self, what: str) -> None:
        """Nothing is done until this is there; "": it is."""
        text = f"waiting for {what}" if what else "pruning"
        self._bar.set_description_str(f"{self._what}{text}", refresh=True)

    def block(self, index: int, what: str) -> None:
        """A new stage of a block."""
        self._bar.set_description_str(
            f"{self._what}block {index + 1}/{self._blocks}{self._place}", refresh=False
        )
        self._bar.set_postfix_str(what, refresh=True)

    def model(self, what: str) -> None:
        """A stage of the whole model."""
        self._bar.set_description_str(f"{self._what}model", refresh=False)
        self._bar.set_postfix_str(what, refresh=True)

    def event(self, name: str, event: Event) -> None:
        """An event of a running job, in any thread."""
        progress = event.progress
        if progress is not None and progress.warm_start_loss > 0:
            text = printable(f"{layer_type(name)} -{100 * progress.reduction:.1f} %")
            self._bar.set_postfix_str(text, refresh=False)

    def done(self, count: int = 1) -> None:
        """Matrices are finished."""
        self._bar.update(count)

    def close(self) -> None:
        """Ends the line."""
        self._bar.close()

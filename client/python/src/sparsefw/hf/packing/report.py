"""What packing made smaller."""

from __future__ import annotations

import dataclasses
from typing import Any

from sparsefw._text import printable

_NO_FASTER = (
    "smaller on disk, not faster: a loaded model is dense with zeros, and runs as fast as before unless a "
    "runtime with sparse kernels runs it"
)


@dataclasses.dataclass
class Part:
    """Some of a folder.

    Attributes:
        tensors:  how many.
        elements: of all of them.
        zeros:    of the elements.
        before:   bytes of the tensors, or of files.
        after:    the same, packed.
    """

    tensors: int = 0
    elements: int = 0
    zeros: int = 0
    before: int = 0
    after: int = 0

    def add(self, elements: int, zeros: int, before: int, after: int) -> None:
        """Another tensor."""
        self.tensors += 1
        self.elements += elements
        self.zeros += zeros
        self.before += before
        self.after += after


@dataclasses.dataclass
class Packed:
    """The report of `pack`.

    Attributes:
        out:     the packed folder.
        pruned:  tensors of which an eighth or more is zero.
        dense:   all other tensors.
        rest:    everything else in the folder: tokenizer, configuration, headers.
        seconds: with reading back what was written.
    """

    out: str
    pruned: Part = dataclasses.field(default_factory=Part)
    dense: Part = dataclasses.field(default_factory=Part)
    rest: Part = dataclasses.field(default_factory=Part)
    seconds: float = 0.0

    @property
    def before(self) -> int:
        """Bytes of the folder."""
        return self.pruned.before + self.dense.before + self.rest.before

    @property
    def after(self) -> int:
        """Bytes of the packed folder."""
        return self.pruned.after + self.dense.after + self.rest.after

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "before": self.before, "after": self.after}

    def __str__(self) -> str:
        named = {"pruned tensors": self.pruned, "other tensors": self.dense, "everything else": self.rest}
        lines = [("", "tensors", "zero", "before", "after", "share")]
        for name, part in named.items():
            count = str(part.tensors) if part.tensors else "-"
            zeros = f"{part.zeros / part.elements:.2%}" if part.elements else "-"
            lines.append((name, count, zeros, *_sizes(part.before, part.after)))
        lines.append(("folder", "", "", *_sizes(self.before, self.after)))
        widths = [max(len(line[column]) for line in lines) for column in range(6)]
        table = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*table, f"{printable(self.out)}: {self.seconds:.1f} s; {_NO_FASTER}"])


def _sizes(before: int, after: int) -> tuple[str, str, str]:
    share = f"{after / before:.1%}" if before else "-"
    return mebibytes(before), mebibytes(after), share


def mebibytes(size: int) -> str:
    """For people."""
    return f"{size / (1 << 20):.2f} MiB"

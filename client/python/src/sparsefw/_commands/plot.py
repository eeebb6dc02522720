"""`sparsefw plot`: the losses that a running job reports, as text or as a picture."""

from __future__ import annotations

import argparse
import shutil
from typing import Any, Final

from sparsefw._commands import check_picture
from sparsefw._commands.outputs import connection_files
from sparsefw._files import check_absent, check_outputs
from sparsefw._inputs.packages import new_figure, save_figure
from sparsefw._text import printable
from sparsefw.errors import invalid
from sparsefw.results import Event, Progress

_ROWS: Final = 14
_LEAST_COLUMNS: Final = 24
_NAMES: Final = (("relaxed", "."), ("rounded", "o"))


class Trace:
    """Collects the reports of one job. Call it with every event.

    Attributes:
        points: (iteration, relaxed loss, rounded loss), as shares of the warm start's loss.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float]] = []

    def __call__(self, event: Event) -> None:
        progress = event.progress
        if progress is None or progress.iteration == 0 or progress.warm_start_loss <= 0:
            return
        if not self.points or self.points[-1][0] < progress.iteration:
            self.points.append(_shares(progress))

    def text(self, columns: int) -> str:
        """A drawing of at most so many columns."""
        width = max(_LEAST_COLUMNS, columns - 10)
        values = [value for _, *both in self.points for value in both]
        low, high = min(values), max(values)
        cells = [[" "] * width for _ in range(_ROWS)]
        first, last = self.points[0][0], self.points[-1][0]
        for iteration, *both in self.points:
            column = round((iteration - first) / max(1, last - first) * (width - 1))
            for value, (_, mark) in zip(both, _NAMES, strict=True):
                row = round((high - value) / ((high - low) or 1.0) * (_ROWS - 1))
                cells[row][column] = mark
        lines = [f"{_label(row, low, high)} |{''.join(line).rstrip()}" for row, line in enumerate(cells)]
        ends = f"{first}{str(last).rjust(width - len(str(first)))}"
        legend = ", ".join(f"{mark} {name} loss" for name, mark in _NAMES)
        return "\n".join([*lines, f"{'':8} +{'-' * width}", f"{'':9}{ends}", _title(legend)])

    def draw(self, path: str, name: str) -> None:
        """Writes a picture; needs matplotlib."""
        figure, axes = new_figure()
        steps = [point[0] for point in self.points]
        for index, (kind, _) in enumerate(_NAMES, 1):
            # A marker, since a quick job may have been seen once only.
            axes.plot(steps, [100 * point[index] for point in self.points], ".-", label=f"{kind} loss")
        axes.set_xlabel("iteration")
        axes.set_ylabel("% of the warm start's loss")
        axes.set_title(printable(name))
        axes.grid(alpha=0.3)
        axes.legend()
        save_figure(figure, path)


def _shares(progress: Progress) -> tuple[int, float, float]:
    unit = progress.warm_start_loss
    return progress.iteration, progress.relaxed_loss / unit, progress.rounded_loss / unit


def _label(row: int, low: float, high: float) -> str:
    """In front of the first, the middle and the last row."""
    if row not in (0, _ROWS // 2, _ROWS - 1):
        return " " * 8
    return f"{100 * (high - (high - low) * row / (_ROWS - 1)):7.2f}%"


def _title(legend: str) -> str:
    return f"{'':9}iteration; per cent of the warm start's loss: {legend}"


def add_plot(commands: Any, add_server_flags: Any, connect: Any) -> None:
    """`sparsefw plot`."""
    parser = commands.add_parser(
        "plot",
        help="watch a running job to its end, and draw its losses",
        epilog="The server keeps no reports: what came before this command, and a job that has ended, cannot "
        "be drawn. Give prune --plot FILE.png to have all of a job.",
    )
    parser.add_argument("job", metavar="JOB", help="jobs/ID")
    parser.add_argument("--out", metavar="FILE.png", help="a picture; needs matplotlib: 'sparsefw[plot]'")
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --out")
    add_server_flags(parser)
    parser.set_defaults(run=_plot, connect=connect)


def show(trace: Trace, name: str, out: str | None) -> None:
    """Prints the drawing, or writes the picture; of at least one report."""
    if out:
        trace.draw(out, name)
    else:
        print(trace.text(shutil.get_terminal_size().columns))


def _plot(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        check_outputs({"--out": arguments.out}, connection_files(arguments))
        check_absent(arguments.out, arguments.overwrite)
        check_picture("--out", arguments.out)
    trace = Trace()
    with arguments.connect(arguments) as client:
        job = client.job(arguments.job)
        for event in job.events():
            trace(event)
    if len(trace.points) < 2:  # a job that has ended tells only its last report
        raise invalid(
            f"{job.name} made {len(trace.points)} reports while this was watching, and earlier ones are not "
            "kept: plot a job while it runs, or give prune --plot FILE.png"
        )
    show(trace, job.name, arguments.out)
    return 0

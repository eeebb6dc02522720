"""Draws loss against seconds of every method: methods_plot.py RESULTS.json OUT.png. Needs
Matplotlib."""
import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib  # noqa: E402

from cpu import methods  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of the backend)

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
GROUPS = {False: ("masks on the old weights", "#b45309"), True: ("masks with new weights", "#1d4ed8")}
PEER = "#9ca3af"
CHARACTER, LINE = 6.4, 13  # pixels of a label, at the figure's resolution


def front(found):
    """The points that no other one beats in both, from fast to slow."""
    best, kept = float("inf"), []
    for _, seconds, loss, _ in sorted(found, key=lambda point: (point[1], point[2])):
        if loss < best:
            best = loss
            kept.append((seconds, loss))
    return kept


def boxes(x, y, width):
    """Where a name may stand around its point, the best place first: (left, bottom, right, top)."""
    beside, over = 9, LINE + 4
    for up in (0, over, -over, 2 * over, -2 * over, 3 * over, -3 * over):
        for left in (x + beside, x - beside - width, x - width / 2) if up else (x + beside, x - beside - width):
            yield left, y + up - LINE / 2, left + width, y + up + LINE / 2


def crosses(box, other):
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def name_points(axes, found, lines):
    """Names around their points, where they lie on no point, no name and no line."""
    axes.figure.canvas.draw()
    place = axes.transData.transform
    inside = axes.get_window_extent().bounds
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in (place(point[1:3]) for point in found)]
    for line in lines:
        corners = [place(corner) for corner in line]
        taken += [(min(x, other_x) - 2, min(y, other_y) - 2, max(x, other_x) + 2, max(y, other_y) + 2)
                  for (x, y), (other_x, other_y) in itertools.pairwise(corners)]
    for name, seconds, loss, _ in sorted(found, key=lambda point: point[1]):
        x, y = place((seconds, loss))
        free = [box for box in boxes(x, y, CHARACTER * len(name))
                if inside[0] < box[0] and box[2] < inside[0] + inside[2]
                and not any(crosses(box, other) for other in taken)]
        box = free[0] if free else next(boxes(x, y, CHARACTER * len(name)))
        taken.append(box)
        scale = 72 / axes.figure.dpi
        axes.annotate(name, (seconds, loss), xytext=((box[0] - x) * scale, (box[1] - y) * scale + 1),
                      textcoords="offset points", fontsize=8,
                      color=INK if name.startswith("preset") else MUTED)


def steps(corners):
    """The line that is drawn through a front."""
    pairs = itertools.pairwise(corners)
    return [step for (x, y), (next_x, _) in pairs for step in ((x, y), (next_x, y))] + corners[-1:]


def draw(axes, found, label, colour):
    line = steps(front(found))
    axes.plot(*zip(*line), color=colour, alpha=0.35, linewidth=1.5, zorder=1)
    for name, seconds, loss, _ in found:
        preset = name.startswith("preset")
        axes.plot(seconds, loss, "D" if preset else "o", color=PEER if name == "ALPS in PyTorch" else colour,
                  markersize=8 if preset else 6, zorder=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.3, y=0.15)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(label, loc="left", fontsize=11, color=INK)
    axes.set_xlabel("seconds (log scale)", color=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, colors=INK, which="both")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    return line


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    entry = results["methods"][0]
    found = methods.points(entry)
    figure, panels = pyplot.subplots(1, 2, figsize=(13, 6), dpi=100, layout="constrained")
    parts = [[point for point in found if point[3] == new] for new in GROUPS]
    lines = [draw(axes, part, *group) for axes, part, group in zip(panels, parts, GROUPS.values())]
    panels[0].set_ylabel("loss, per cent of pruning everything (log scale)", color=MUTED)
    figure.suptitle(f"{entry['layer']}, {entry['pattern']} 60 %, {entry['threads']} threads. Diamonds are "
                    "presets. The line joins what nothing in its panel beats in both.",
                    x=0.01, ha="left", fontsize=11, color=INK)
    for axes, part, line in zip(panels, parts, lines):
        name_points(axes, part, [line])
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()

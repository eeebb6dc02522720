"""Draws loss against seconds of every method: methods_plot.py RESULTS.json OUT.png. Needs
Matplotlib."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib  # noqa: E402

from cpu import methods  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of the backend)

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
GROUPS = {False: ("a mask on the old weights", "#b45309"),
          True: ("mask and new weights", "#1d4ed8")}
PEER = "#9ca3af"
CHARACTER, LINE = 6.2, 13  # pixels of a label, at the figure's resolution


def front(found):
    """The points that no other one beats in both, from fast to slow."""
    best, kept = float("inf"), []
    for _, seconds, loss, _ in sorted(found, key=lambda point: (point[1], point[2])):
        if loss < best:
            best = loss
            kept.append((seconds, loss))
    return kept


def name_points(axes, found):
    """Names beside their points, moved up or down where they would lie on others."""
    axes.figure.canvas.draw()
    taken = []
    for name, seconds, loss, _ in sorted(found, key=lambda point: point[2]):
        x, y = axes.transData.transform((seconds, loss))
        width = CHARACTER * len(name)
        shifts = sorted(range(-6, 7), key=abs)
        shift = next((shift for shift in shifts if all(
            abs(y + shift * LINE - other_y) >= LINE or x > other_x + other_width
            or x + width < other_x for other_x, other_y, other_width in taken)), 0)
        taken.append((x, y + shift * LINE, width))
        axes.annotate(name, (seconds, loss), xytext=(8, shift * LINE * 72 / axes.figure.dpi - 3),
                      textcoords="offset points", fontsize=8,
                      color=INK if name.startswith("preset") else MUTED)


def draw(axes, entry):
    found = methods.points(entry)
    for new, (label, colour) in GROUPS.items():
        group = [point for point in found if point[3] == new]
        axes.plot(*zip(*front(group)), color=colour, alpha=0.35, linewidth=1.5,
                  drawstyle="steps-post", zorder=1)
        axes.plot([], [], "o", color=colour, label=label)
        for name, seconds, loss, _ in group:
            own = PEER if name == "ALPS in PyTorch" else colour
            preset = name.startswith("preset")
            axes.plot(seconds, loss, "D" if preset else "o", color=own,
                      markersize=8 if preset else 6, zorder=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.15)
    name_points(axes, found)
    axes.set_xlabel("seconds (log scale)", color=MUTED)
    axes.set_ylabel("loss, per cent of pruning everything (log scale)", color=MUTED)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_title(f"{entry['layer']}, {entry['pattern']} 60 %, {entry['threads']} threads; "
                   "diamonds are presets", loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, colors=INK, which="both")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper right", fontsize=9)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    figure, axes = pyplot.subplots(figsize=(11, 7), dpi=100, layout="constrained")
    draw(axes, results["methods"][0])
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()

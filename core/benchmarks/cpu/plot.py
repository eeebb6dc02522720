"""Draws the iterations of a results file: plot.py RESULTS.json OUT.png. Needs Matplotlib."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib  # noqa: E402

from cpu import goals  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of the backend)

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
COLOURS = {"PyTorch": "#b45309", "engine": "#1d4ed8", "floor": "#9ca3af"}


def _bars(results):
    """(label, {series: ms}) for the unstructured cells at alpha 0.9 with the most threads."""
    threads = max(cell["threads"] for cell in results["iterations"])
    ceiling = goals.find(results.get("ceilings"), threads=threads)
    rows = []
    for cell in results["iterations"]:
        if (cell["pattern"], cell["alpha"], cell["threads"]) != ("unstructured", 0.9, threads):
            continue
        values = {"engine": goals.seconds_per_iteration(cell)}
        keys = {key: cell[key] for key in ("rows", "cols", "pattern", "alpha", "threads")}
        peer = goals.find(results.get("peer"), **keys)
        if peer:
            values["PyTorch"] = peer["seconds_after"][-1] / peer["iterations"]
        if ceiling:
            values["floor"] = goals.floor_factor(cell, ceiling, "triad_bytes_per_second")[1]
        rows.append((f"{cell['rows']}×{cell['cols']}", values))
    return threads, rows


def draw_iterations(axes, results):
    threads, rows = _bars(results)
    names = [name for name in COLOURS if any(name in values for _, values in rows)]
    height = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        for row, (_, values) in enumerate(rows):
            if name not in values:
                continue
            ms = values[name] * 1e3
            y = row + (index - (len(names) - 1) / 2) * height
            axes.barh(y, ms, height * 0.9, color=COLOURS[name], label=name if row == 0 else None)
            axes.text(ms * 1.08, y, f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}", va="center", fontsize=9, color=MUTED)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("milliseconds (log scale)", color=MUTED)
    axes.set_title(f"One iteration, unstructured 60 %, α = 0.9, {threads} threads. "
                   "Floor: what memory allows", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    if results.get("iterations"):
        draw_iterations(axes, results)
    else:
        axes.set_axis_off()
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()

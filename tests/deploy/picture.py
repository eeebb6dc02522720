"""Draws the panels of the dashboard from what a Prometheus collected in a minute of load:

    PYTHONPATH=tests/deploy picture.py OUT.png [SECONDS]

A part of script/deploy-check --picture; needs matplotlib."""
import datetime
import json
import math
import re
import sys
import tempfile
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from PIL import Image  # noqa: E402

from conftest import SOURCE_DIR  # noqa: E402
from stack import Stack, concrete  # noqa: E402

UNITS = {"s": "s", "bytes": "MiB", "Bps": "MiB/s", "percentunit": "%", "ops": "1/s", "reqps": "1/s",
         "celsius": "°C", "watt": "W", "short": "", "bool_yes_no": ""}
SCALE = {"bytes": 2**-20, "Bps": 2**-20, "percentunit": 100}
COLUMNS = 3


def legend(pattern, labels):
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), pattern)


def draw_heatmap(axes, panel, stack, begin, end):
    found = stack.range(concrete(panel["targets"][0]["expr"]), begin, end, 1)
    found.sort(key=lambda series: float(series["metric"]["le"]))
    counts = [[float(value) for _, value in series["values"]] for series in found]
    bands = [[max(0, b - a) for a, b in zip(low, high)] for low, high in zip([[0] * len(counts[0])] + counts, counts)]
    assert bands, f"{panel['title']}: no data"
    axes.imshow(bands, aspect="auto", origin="lower", cmap="Blues", extent=(0, end - begin, 0, len(bands)))
    axes.set_yticks(range(1, len(bands) + 1), [f"≤ {series['metric']['le']}" for series in found])
    axes.set_title(panel["title"], fontsize=8, loc="left")
    axes.tick_params(labelsize=5)


def draw(axes, panel, stack, begin, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    lines = 0
    for target in panel["targets"]:
        # Only the second server has cards that NVML knows, and nothing else to show.
        server = "cards" if "sparsefw_gpu" in target["expr"] else "busy"
        if panel["type"] == "stat":
            server = ".+"
        for series in stack.range(concrete(target["expr"].replace("$server", server)), begin, end, 1):
            values = [(float(t) - begin, float(v) * SCALE.get(unit, 1)) for t, v in series["values"]]
            values = [(t, v) for t, v in values if math.isfinite(v)]
            if values:
                lines += 1
                axes.plot(*zip(*values), linewidth=1.1, label=legend(target["legendFormat"], series["metric"]))
    assert lines, f"{panel['title']}: no data"
    axes.set_title(f"{panel['title']}{f' [{UNITS[unit]}]' if UNITS[unit] else ''}", fontsize=8, loc="left")
    axes.set_xlim(0, end - begin)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.25)
    if lines <= 9:
        axes.legend(fontsize=5, loc="upper left", framealpha=0.6, ncols=2 if lines > 4 else 1)


def main():
    out, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60
    board = json.loads((SOURCE_DIR / "deploy/grafana/sparsefw.json").read_text())
    with tempfile.TemporaryDirectory() as folder, Stack(folder) as stack:
        begin = time.time()
        stack.run_for(seconds)
        end = time.time()
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        rows = -(-len(panels) // COLUMNS)
        figure, axes = plt.subplots(rows, COLUMNS, figsize=(13, 1.75 * rows), constrained_layout=True)
        for place, panel in zip(axes.flat, panels):
            (draw_heatmap if panel["type"] == "heatmap" else draw)(place, panel, stack, begin + 5, end)
        for place in list(axes.flat)[len(panels):]:
            place.axis("off")
        jobs = sum(tenant.ended for tenant in stack.tenants)
        figure.suptitle(f"deploy/grafana/sparsefw.json, {datetime.date.today()}: {seconds:.0f} s, {jobs} jobs of two "
                        "tenants; devices are emulated, GPU figures those of a fake NVML", fontsize=9)
        figure.savefig(out, dpi=80)
    # Lines need no more colours, and the file is a third as large.
    Image.open(out).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    main()

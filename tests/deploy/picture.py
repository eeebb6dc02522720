"""Draws six panels of the dashboard from what a Prometheus collected in a minute of load:

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
# No Grafana is at hand where this runs: Matplotlib draws what its panels ask Prometheus for.
SHOWN = ("Jobs now", "Jobs ended", "Time in the queue", "Time of solving, 95 %", "Tensors and uploads", "Refusals")
COLUMNS = 3


def legend(pattern, labels):
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), pattern)


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
                axes.plot(*zip(*values), linewidth=1.4, label=legend(target["legendFormat"], series["metric"]))
    assert lines, f"{panel['title']}: no data"
    axes.set_title(f"{panel['title']}{f' [{UNITS[unit]}]' if UNITS[unit] else ''}", fontsize=10, loc="left")
    axes.set_xlim(0, end - begin)
    axes.set_xlabel("seconds", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False, ncols=2)


def main():
    out, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60
    board = json.loads((SOURCE_DIR / "deploy/grafana/sparsefw.json").read_text())
    with tempfile.TemporaryDirectory() as folder, Stack(folder) as stack:
        begin = time.time()
        stack.run_for(seconds)
        end = time.time()
        by_title = {panel["title"]: panel for panel in board["panels"]}
        figure, axes = plt.subplots(len(SHOWN) // COLUMNS, COLUMNS, figsize=(13, 6.5), constrained_layout=True)
        for place, title in zip(axes.flat, SHOWN):
            draw(place, by_title[title], stack, begin + 5, end)
        jobs = sum(tenant.ended for tenant in stack.tenants)
        figure.suptitle(f"Six panels of deploy/grafana/sparsefw.json, {datetime.date.today()}: {seconds:.0f} s, {jobs} jobs "
                        "of two tenants. Drawn by Matplotlib from Prometheus.", fontsize=10, x=0.01, ha="left")
        figure.savefig(out, dpi=90)
    # Lines need no more colours, and the file is a third as large.
    Image.open(out).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    main()

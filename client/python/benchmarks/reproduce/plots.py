"""Plots of runs: Figures 2, 3 and 4."""

import re

from kept_runs import along_iterations, mean_loss

COLORS = {"SparseFW": "tab:blue", "Wanda": "tab:orange"}


def plot_sweeps(runs, sweeps, path):
    """Figure 3: perplexity, and below it the loss of a layer, against iterations and samples."""
    from matplotlib import pyplot

    drawn = [what for what in ("iterations", "samples") if what in sweeps]
    count = max(1, len(drawn))
    figure, axes = pyplot.subplots(
        2, count, figsize=(5 * count, 5), squeeze=False, sharex="col", layout="constrained")
    text = next(iter(runs["dense"]["perplexity"]))
    for column, what in enumerate(drawn):
        for name in (key for key in sweeps if key.startswith(what)):
            there = [(at, runs[run]) for at, (run, _) in sweeps[name].items() if run in runs]
            label = "Wanda" if name.endswith("Wanda") else "SparseFW"
            xs = [at for at, _ in there]
            perplexities = [run["perplexity"][text]["value"] for _, run in there]
            rows = (perplexities, [100 * mean_loss(run) for _, run in there])
            for axis, ys in zip(axes[:, column], rows, strict=True):
                axis.plot(xs, ys, marker="o", color=COLORS[label], label=label)
            axes[1, column].set_xscale("log")
            axes[1, column].set_xticks(xs, [str(at) for at in xs])
            axes[1, column].minorticks_off()
        axes[1, column].set_xlabel(what)
        # From zero: a part of the axis would make a trend of noise.
        for axis in axes[:, column]:
            axis.set_ylim(0, 1.15 * axis.dataLim.y1)
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel(f"perplexity, {text}")
    axes[1, 0].set_ylabel("mean loss of a layer, %")
    axes[0, -1].legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_traces(run, path):
    """Figure 4: reduction of the relaxed and the rounded mask, and the threshold residual, in per cent."""
    from matplotlib import pyplot

    traces = along_iterations(run)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    panels = (
        (left, "relaxed_loss", "relaxed mask", "tab:blue"),
        (left, "rounded_loss", "rounded mask", "tab:orange"),
        (right, "threshold_residual", "threshold residual", "tab:green"))
    for axis, column, label, color in panels:
        xs, _, low, median, high = zip(*traces[column], strict=True)
        low, median, high = ([100 * value for value in values] for values in (low, median, high))
        axis.plot(xs, median, color=color, label=f"{label}: median")
        axis.fill_between(xs, low, high, color=color, alpha=0.2, label="10 to 90 % of the layers")
        axis.set_xlabel("iterations")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    left.set_title("loss below that of the warm start", fontsize=11)
    left.set_ylabel("%")
    right.set_title("distance of the relaxed mask from a mask", fontsize=11)
    right.set_ylabel("% of the kept weights")
    right.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_reductions(runs, scale, folder):
    """Figure 2: by block and type of matrix."""
    from sparsefw.hf import Report

    for name, run in runs.items():
        # Runs of a kept file have no shapes.
        if run["options"].get("method") == "sparsefw" and "shape" in run["layers"][0]:
            fields = ("settings", "versions", "layers", "dense", "seconds")
            short = re.sub(r"[^a-z0-9]+", "-", f"{scale} {name}".lower()).strip("-")
            Report(**{key: run[key] for key in fields}).plot(folder / f"{short}.png")

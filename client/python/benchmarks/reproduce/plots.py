"""Plots of runs: Figures 2, 3 and 4."""

import re

from kept_runs import along_iterations, mean_loss


def plot_sweeps(runs, sweeps, path):
    """Figure 3: loss and perplexity against iterations and samples."""
    from matplotlib import pyplot

    drawn = [what for what in ("iterations", "samples") if what in sweeps]
    count = max(1, len(drawn))
    figure, axes = pyplot.subplots(1, count, figsize=(5 * count, 3.5), squeeze=False)
    for axis, what in zip(axes[0], drawn, strict=False):
        other = axis.twinx()
        for line, name in enumerate(key for key in sweeps if key.startswith(what)):
            there = [(at, runs[run]) for at, (run, _) in sweeps[name].items() if run in runs]
            style = {"marker": "o", "linestyle": "-" if line == 0 else "--"}
            label = "Wanda" if name.endswith("Wanda") else "SparseFW"
            text = next(iter(runs["dense"]["perplexity"]))
            xs = [at for at, _ in there]
            axis.plot(xs, [run["perplexity"][text]["value"] for _, run in there],
                      color="tab:blue", label=f"perplexity, {label}", **style)
            other.plot(xs, [100 * mean_loss(run) for _, run in there],
                       color="tab:orange", label=f"loss, {label}", **style)
        axis.set(xscale="log", xlabel=what, ylabel="perplexity")
        other.set_ylabel("mean loss of a layer, %")
        lines = [*axis.get_lines(), *other.get_lines()]
        axis.legend(lines, [line.get_label() for line in lines], fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_traces(run, path):
    """Figure 4: reduction of the relaxed and the rounded mask, and the threshold residual."""
    from matplotlib import pyplot

    traces = along_iterations(run)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.5))
    panels = (
        (left, "relaxed_loss", "relaxed", "tab:blue"), (left, "rounded_loss", "rounded", "tab:orange"),
        (right, "threshold_residual", "threshold residual", "tab:green"))
    for axis, column, label, color in panels:
        xs, _, low, median, high = zip(*traces[column], strict=True)
        axis.plot(xs, median, color=color, label=label)
        axis.fill_between(xs, low, high, color=color, alpha=0.2)
        axis.set_xlabel("iterations")
        axis.legend()
    left.set_ylabel("reduction against the warm start")
    right.set_ylabel("residual / weights kept")
    figure.tight_layout()
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

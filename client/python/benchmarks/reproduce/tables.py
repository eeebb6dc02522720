"""Tables and plots of the runs that are there: build/reproduce/tables.md, *.png."""

import argparse
import collections
import json
import re
from pathlib import Path

import settings

BEST = "**"


def read(folder):
    """Runs by scale (samples, sequence length, windows) and name."""
    found = collections.defaultdict(dict)
    for path in sorted((folder / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        windows = next(iter(run["perplexity"].values()))
        found[windows["length"], windows["windows"]][run["name"]] = run
    return found


def value(run, text):
    return f"{run['perplexity'][text]['value']:.2f}"


def table1(runs):
    """Perplexity on both texts by method and pattern."""
    patterns = [name for name in settings.PATTERNS if any(run.startswith(f"{name}, ") for run in runs)]
    texts = list(runs["dense"]["perplexity"])
    head = ["perplexity: " + " / ".join(texts), *patterns]
    lines = [head, ["---"] * len(head)]
    dense = " / ".join(value(runs["dense"], text) for text in texts)
    lines.append(["dense", *[dense] * len(patterns)])
    for label in settings.TABLE1:
        cells = [
            " / ".join(value(run, text) for text in texts)
            if (run := runs.get(f"{pattern}, {label}")) else "-"
            for pattern in patterns
        ]
        lines.append([label, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_cloze(runs):
    """Accuracy of the cloze test, where it was run."""
    some = {name: run["cloze"] for name, run in runs.items() if run.get("cloze")}
    if not some:
        return ""
    texts = list(next(iter(some.values())))
    lines = [["cloze, share right", *texts], ["---"] * (1 + len(texts))]
    lines += [[name, *(f"{values[text]:.1%}" for text in texts)] for name, values in some.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scale_of(length, windows):
    """The larger of the scales that such runs are of."""
    return next(
        scale for scale in (settings.FULL, settings.SMALL)
        if (scale.sequence_length, scale.windows) == (length, windows))


def mean_loss(run):
    """Of the layers, relative to pruning everything, with new weights where there are any."""
    shares = [
        (losses["final"] if losses["reconstructed"] is None else losses["reconstructed"]) / losses["full"]
        for losses in (layer["losses"] for layer in run["layers"])
    ]
    return sum(shares) / len(shares)


def sweep_table(runs, what, points):
    """Mean loss of a layer and perplexity along one setting: Table 3, Figure 3."""
    there = [(setting, runs[name]) for setting, (name, _) in points.items() if name in runs]
    if len(there) < 2:
        return ""
    texts = list(runs["dense"]["perplexity"])
    lines = [[what, "mean loss of a layer", *texts], ["---"] * (2 + len(texts))]
    for setting, run in there:
        lines.append([str(setting), f"{mean_loss(run):.2%}", *(value(run, text) for text in texts)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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


def along_iterations(run):
    """{column: (iterations, [values of every layer])}; losses as reductions against the warm start."""
    found = {}
    for column in ("relaxed_loss", "rounded_loss", "threshold_residual"):
        by_iteration = collections.defaultdict(list)
        for layer in run["layers"]:
            start = layer["losses"]["warm_start"]
            for point in layer.get("trace", []):
                shown = point[column] if column == "threshold_residual" else 1 - point[column] / start
                by_iteration[point["iteration"]].append(shown)
        found[column] = sorted(by_iteration.items())
    return found


def plot_traces(run, path):
    """Figure 4: reduction of the relaxed and the rounded mask, and the threshold residual."""
    from matplotlib import pyplot

    traces = along_iterations(run)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.5))
    panels = (
        (left, "relaxed_loss", "relaxed", "tab:blue"), (left, "rounded_loss", "rounded", "tab:orange"),
        (right, "threshold_residual", "threshold residual", "tab:green"))
    for axis, column, label, color in panels:
        points = [(at, sorted(values)) for at, values in traces[column]]
        xs = [at for at, _ in points]
        axis.plot(xs, [values[len(values) // 2] for _, values in points], color=color, label=label)
        axis.fill_between(xs, [values[len(values) // 10] for _, values in points],
                          [values[len(values) * 9 // 10] for _, values in points], color=color, alpha=0.2)
        axis.set_xlabel("iterations")
        axis.legend()
    left.set_ylabel("reduction against the warm start")
    right.set_ylabel("residual / weights kept")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def trace_table(run):
    """Medians of Figure 4 at some iterations."""
    traces = along_iterations(run)
    rows = traces["relaxed_loss"]
    chosen = sorted({0, len(rows) // 16, len(rows) // 8, len(rows) // 4, len(rows) // 2, len(rows) - 1})
    lines = [["iteration", "layers", "relaxed", "rounded", "threshold residual"], ["---"] * 5]
    for index in chosen:
        middle = {
            column: sorted(traces[column][index][1])[len(rows[index][1]) // 2] for column in traces}
        lines.append([
            str(rows[index][0]), str(len(rows[index][1])), f"{middle['relaxed_loss']:.1%}",
            f"{middle['rounded_loss']:.1%}", f"{middle['threshold_residual']:.4f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(runs):
    """What a run took, and the mean loss of its layers."""
    head = ["run", "mean loss of a layer", "reduction", "certificate", "seconds of jobs", "seconds in all"]
    lines = [head, ["---"] * len(head)]
    for name, run in runs.items():
        if name == "dense":
            continue
        layers = run["layers"]
        count = len(layers)
        last = [
            losses["final"] if losses["reconstructed"] is None else losses["reconstructed"]
            for losses in (layer["losses"] for layer in layers)
        ]
        pairs = list(zip(layers, last, strict=True))
        loss = mean_loss(run)
        reduction = sum(1 - value / layer["losses"]["warm_start"] for layer, value in pairs) / count
        bound = sum(layer["losses"]["lower_bound"] / layer["losses"]["final"] for layer in layers) / count
        jobs = sum(layer["seconds"] for layer in layers)
        took = f"{run['prune_seconds']:.0f}"
        certificate = f"{bound:.0%}" if bound else "-"
        lines.append([name, f"{loss:.2%}", f"{reduction:.1%}", certificate, f"{jobs:.0f}", took])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def reductions(runs):
    """Reduction of the local loss against the warm start by type of matrix, of the runs of SparseFW."""
    found = {}
    for name, run in runs.items():
        if run.get("options", {}).get("method") == "sparsefw" and not run["options"].get("reconstruct"):
            by_type = collections.defaultdict(list)
            for layer in run["layers"]:
                kind = layer["name"].removesuffix(".weight").rpartition(".")[2]
                by_type[kind].append(1 - layer["losses"]["final"] / layer["losses"]["warm_start"])
            found[name] = {kind: sum(values) / len(values) for kind, values in by_type.items()}
    if not found:
        return ""
    kinds = list(next(iter(found.values())))
    head = ["reduction of the layer's loss", *kinds]
    lines = [head, ["---"] * len(head)]
    lines += [[name, *(f"{values[kind]:.0%}" for kind in kinds)] for name, values in found.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot_reductions(runs, folder):
    """Figure 2: by block and type of matrix."""
    from sparsefw.hf import Report

    for name, run in runs.items():
        if run.get("options", {}).get("method") == "sparsefw":
            fields = ("settings", "versions", "layers", "dense", "seconds")
            short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            Report(**{key: run[key] for key in fields}).plot(folder / f"{short}.png")


COLUMNS = ("full", "warm_start", "relaxed", "rounded", "final", "lower_bound", "reconstructed")


def compact(run):
    """A run with a row a layer, six digits, for the repository."""
    rows = [
        [layer["name"], layer["kept"], *(_short(layer["losses"][name]) for name in COLUMNS),
         _short(layer["seconds"])]
        for layer in run.get("layers", [])
    ]
    if any("trace" in layer for layer in run.get("layers", [])):
        run = {**run, "along_iterations": _medians(run)}
    kept = {key: value for key, value in run.items() if key not in ("layers", "curves", "dense", "out")}
    return {**kept, "columns": ["name", "kept", *COLUMNS, "seconds"], "layers": rows}


def _medians(run):
    return {
        column: [[at, len(values), _short(sorted(values)[len(values) // 2])] for at, values in points]
        for column, points in along_iterations(run).items()
    }


def _short(value):
    return value if value is None else float(f"{value:.6g}")


def keep(folder, path):
    """Every run in one file."""
    runs = [compact(json.loads(file.read_text())) for file in sorted((folder / "runs").glob("*.json"))]
    lines = (json.dumps(run) for run in runs)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="also write every run to this JSON file")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(arguments.folder, arguments.keep)
    parts = []
    for (length, windows), runs in read(arguments.folder).items():
        parts.append(f"## Windows of {length} tokens, {windows} of each text\n\n{table1(runs)}\n")
        sweeps = settings.sweeps(scale_of(length, windows))
        tables = [sweep_table(runs, what, points) for what, points in sweeps.items()]
        if settings.TRACED in runs:
            tables.append(trace_table(runs[settings.TRACED]))
            plot_traces(runs[settings.TRACED], arguments.folder / f"iterations-{length}.png")
        if any(tables[:-1]):
            plot_sweeps(runs, sweeps, arguments.folder / f"sweeps-{length}.png")
        tables += [table_cloze(runs), reductions(runs), seconds(runs)]
        parts += [f"{table}\n" for table in tables if table]
        plot_reductions(runs, arguments.folder)
    path = arguments.folder / "tables.md"
    path.write_text("\n".join(parts))
    print(path.read_text())


if __name__ == "__main__":
    main()

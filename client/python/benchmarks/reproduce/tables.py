"""Tables and plots of the runs that are there: build/reproduce/tables.md, *.png."""

import argparse
import collections
from pathlib import Path

import settings
from kept_runs import along_iterations, keep, mean_loss, read
from plots import plot_reductions, plot_sweeps, plot_traces

# Masks alone, which compare with the warm starts.
ONE_SHOT = ("Wanda", "RIA")
SPARSEFW = ("SparseFW (Wanda)", "SparseFW (RIA)", "SparseFW (Wanda) + swaps")


def grid(lines):
    """Markdown of a head and its rows."""
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def value(run, text):
    return f"{run['perplexity'][text]['value']:.2f}"


def both(run, texts):
    return " / ".join(value(run, text) for text in texts)


def patterns_of(runs):
    return [name for name in settings.PATTERNS if any(run.startswith(f"{name}, ") for run in runs)]


def by_pattern(runs, head, cell):
    """A row a method, a column a pattern."""
    patterns = patterns_of(runs)
    lines = [[head, *patterns]]
    for label in settings.TABLE1:
        there = [runs.get(f"{pattern}, {label}") for pattern in patterns]
        if any(there):
            lines.append([label, *(cell(run) if run else "-" for run in there)])
    return lines


def table1(runs):
    """Perplexity on both texts by method and pattern."""
    texts = list(runs["dense"]["perplexity"])
    lines = by_pattern(runs, "perplexity: " + " / ".join(texts), lambda run: both(run, texts))
    lines.insert(1, ["dense", *[both(runs["dense"], texts)] * (len(lines[0]) - 1)])
    return grid(lines)


def table_losses(runs):
    """Mean over the layers: loss, certificate where there is one."""

    def cell(run):
        bound = certificate(run)
        return f"{mean_loss(run):.2%}" + (f", {bound:.0%}" if bound else "")

    return grid(by_pattern(runs, "loss, certificate", cell))


def table_cloze(runs):
    """Accuracy of the cloze test, where it was run."""
    texts = list(runs["dense"]["perplexity"])

    def cell(run):
        shares = run.get("cloze")
        return " / ".join(f"{shares[text]:.0%}" for text in texts) if shares else "-"

    lines = by_pattern(runs, "cloze, share right: " + " / ".join(texts), cell)
    lines.insert(1, ["dense", *[cell(runs["dense"])] * (len(lines[0]) - 1)])
    return grid([line for line in lines if any(part != "-" for part in line[1:])])


def below(runs):
    """Where SparseFW does not have a lower perplexity than Wanda and RIA."""
    texts = list(runs["dense"]["perplexity"])
    above, compared = [], 0
    for pattern in patterns_of(runs):
        for label in SPARSEFW:
            run = runs.get(f"{pattern}, {label}")
            others = [runs.get(f"{pattern}, {other}") for other in ONE_SHOT]
            if run is None or not all(others):
                continue
            for text in texts:
                compared += 1
                own = run["perplexity"][text]["value"]
                least, other = min(
                    (other_run["perplexity"][text]["value"], other)
                    for other, other_run in zip(ONE_SHOT, others, strict=True))
                if own >= least:
                    above.append(f"{pattern}, {label}, {text}: {own:.2f} against {least:.2f} of {other}")
    if not above:
        return f"SparseFW is below Wanda and RIA in all {compared} comparisons of masks."
    return (f"SparseFW is below Wanda and RIA in {compared - len(above)} of {compared} comparisons of masks. "
            f"Not below: " + "; ".join(above) + ".")


def scale_of(length, windows):
    """The larger of the scales that such runs are of."""
    return next(
        scale for scale in (settings.FULL, settings.SMALL)
        if (scale.sequence_length, scale.windows) == (length, windows))


def sweep_table(runs, what, points):
    """Mean loss of a layer and perplexity along one setting: Table 3, Figure 3."""
    there = [(setting, runs[name]) for setting, (name, _) in points.items() if name in runs]
    if len(there) < 2:
        return ""
    texts = list(runs["dense"]["perplexity"])
    lines = [[what, "mean loss of a layer", *texts, "seconds of all jobs"]]
    for setting, run in there:
        lines.append([str(setting), f"{mean_loss(run):.2%}", *(value(run, text) for text in texts),
                      f"{job_seconds(run):.0f}"])
    return grid(lines)


def trace_table(run):
    """Medians of Figure 4 at some iterations."""
    traces = along_iterations(run)
    rows = traces["relaxed_loss"]
    chosen = sorted({0, len(rows) // 16, len(rows) // 8, len(rows) // 4, len(rows) // 2, len(rows) - 1})
    lines = [["iteration", "layers", "relaxed", "rounded", "threshold residual"]]
    for index in chosen:
        at, count, _, relaxed, _ = rows[index]
        rounded, residual = (traces[column][index][3] for column in ("rounded_loss", "threshold_residual"))
        lines.append([str(at), str(count), f"{relaxed:.1%}", f"{rounded:.1%}", f"{residual:.4f}"])
    return grid(lines)


def certificate(run):
    layers = run["layers"]
    return sum(layer["losses"]["lower_bound"] / layer["losses"]["final"] for layer in layers) / len(layers)


def job_seconds(run):
    return sum(layer["seconds"] for layer in run["layers"])


def seconds(runs):
    """What every run took."""
    lines = [["run", "mean loss of a layer", "seconds of all jobs", "seconds in all"]]
    for name, run in runs.items():
        if name != "dense":
            whole = f"{run['prune_seconds']:.0f}" + (" (resumed)" if run.get("resumed") else "")
            lines.append([name, f"{mean_loss(run):.2%}", f"{job_seconds(run):.0f}", whole])
    return grid(lines)


def reductions(runs):
    """Reduction of the local loss against the warm start by type of matrix, of the runs of Table 1."""
    lines = []
    for pattern in patterns_of(runs):
        for label in SPARSEFW:
            run = runs.get(f"{pattern}, {label}")
            if run is None:
                continue
            by_type = collections.defaultdict(list)
            for layer in run["layers"]:
                kind = layer["name"].removesuffix(".weight").rpartition(".")[2].removesuffix("_proj")
                by_type[kind].append(1 - layer["losses"]["final"] / layer["losses"]["warm_start"])
            if not lines:
                lines.append(["reduction of the layer's loss", *by_type])
            lines.append([f"{pattern}, {label}",
                          *(f"{sum(values) / len(values):.0%}" for values in by_type.values())])
    return grid(lines) if lines else ""


def section(runs, scale, folder, length):
    """What docs/results.md has between its markers; draws the plots."""
    parts = [
        table1(runs), below(runs),
        "Loss |WX - W'X|^2 in per cent of pruning everything, on the inputs that the run itself made, mean "
        "over the matrices. The certificate is the share of the mask's loss that no mask with the same fixed "
        "weights can avoid.",
        table_losses(runs), reductions(runs)]
    sweeps = settings.sweeps(scale)
    parts += [sweep_table(runs, what, points) for what, points in sweeps.items()]
    if settings.TRACED in runs:
        parts += ["Medians over the layers, " + settings.TRACED + ": reductions against the warm start.",
                  trace_table(runs[settings.TRACED])]
        plot_traces(runs[settings.TRACED], folder / f"iterations-{length}.png")
    plot_sweeps(runs, sweeps, folder / f"sweeps-{length}.png")
    plot_reductions(runs, folder)
    parts.append(table_cloze(runs))
    return "\n\n".join(part for part in parts if part)


def paste(page, text):
    """`page` with everything between its markers replaced."""
    begin, end = "<!-- runs:begin -->", "<!-- runs:end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page must hold {begin} and {end}, once each, in this order")
    return f"{page.split(begin)[0]}{begin}\n{text}\n{end}{page.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="also write every run to this JSON file")
    parser.add_argument("--page", type=Path, help="also write the tables of the small runs into this page")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(arguments.folder, arguments.keep)
    parts = []
    small = (settings.SMALL.sequence_length, settings.SMALL.windows)
    for (length, windows), runs in read(arguments.folder).items():
        tables = section(runs, scale_of(length, windows), arguments.folder, length)
        if arguments.page and (length, windows) == small:
            text = paste(arguments.page.read_text(), tables)
            arguments.page.write_text(text)
        parts += [f"## Windows of {length} tokens, {windows} of each text", tables, seconds(runs)]
    path = arguments.folder / "tables.md"
    path.write_text("\n\n".join(parts) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()

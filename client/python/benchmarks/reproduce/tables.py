"""Tables and plots of the runs that are there: build/reproduce/tables.md, *.png."""

import argparse
import collections
import math
import re
from pathlib import Path

import settings
import tune_table
from kept_runs import along_iterations, keep, kept_file, mean_loss, read, unpack
from plots import plot_reductions, plot_sweeps, plot_traces

from sparsefw.paired import paired

# Masks on the old weights.
SPARSEFW = ("SparseFW (Wanda)", "SparseFW + swaps")
# Rows of README's table.
SHOWN = ("Wanda", "SparseGPT", "preset fast", "preset balanced", "preset best")
# Rows that are also compared with one that need not be the row above: (it, they).
PRESETS = ("preset fast", "preset balanced", "preset best")
REFINED = tuple(name for name in settings.METHODS if name.endswith(", refined"))
COMPARED = (("ALPS", PRESETS), ("preset balanced", REFINED))
# The first columns of a table of groups, of scales with (allocations, trainings).
HEADS = {
    (True, False): ("pattern", "allocation"),
    (False, True): ("pattern, time", "after the masks of `fast`"),
    (False, False): ("tokens, pattern", "method")}
# (method, its scale) beside (method, its scale): time for more samples, or for more training.
SAMPLES_OR_TRAINING = (
    (("preset balanced", "small"), ("ALPS", "main")),
    (("preset best", "small"), ("preset balanced", "main")))


def grid(lines):
    """Markdown of a head and its rows."""
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def value(run, text):
    return f"{run['perplexity'][text]['value']:.2f}"


def both(run, texts):
    return " / ".join(value(run, text) for text in texts)


def patterns_of(runs):
    return [
        name for name in settings.PATTERNS if any(f"{name}, {method}" in runs for method in settings.METHODS)]


def by_pattern(runs, head, cell):
    """A row a method, a column a pattern."""
    patterns = patterns_of(runs)
    lines = [[head, *patterns]]
    for method in settings.METHODS:
        there = [runs.get(f"{pattern}, {method}") for pattern in patterns]
        if any(there):
            lines.append([method, *(cell(run) if run else "-" for run in there)])
    return lines


def table_methods(runs, methods=tuple(settings.METHODS)):
    """Perplexity on both texts by method and pattern."""
    texts = list(runs["dense"]["perplexity"])
    lines = by_pattern(runs, "perplexity: " + " / ".join(texts), lambda run: both(run, texts))
    lines[1:] = [line for line in lines[1:] if line[0] in methods]
    lines.insert(1, ["dense", *[both(runs["dense"], texts)] * (len(lines[0]) - 1)])
    return grid(lines)


def against(run, other, text):
    """The difference of the perplexities in per cent, with its interval."""
    digests = {found["perplexity"][text]["windows_digest"] for found in (run, other)}
    if len(digests) > 1:
        raise ValueError(f"{run['name']} and {other['name']} were evaluated on other windows of {text}")
    losses = (found["perplexity"][text]["losses"] for found in (run, other))
    mean, low, high = (100 * math.expm1(part) for part in paired(*losses))
    noise = ", no difference" if low <= 0 <= high else ""
    return f"{mean:+.1f} % [{low:+.1f}, {high:+.1f}]{noise}"


def table_pattern(runs, pattern):
    """One pattern: perplexities, each against the row above, and processor time."""
    texts = list(runs["dense"]["perplexity"])
    heads = [part for text in texts for part in (text, "against the row above")]
    lines = [[pattern, *heads, "processor seconds"]]
    above = None
    for name, run in [("dense", runs["dense"]), *methods_of(runs, pattern)]:
        cells = [
            part for text in texts
            for part in (value(run, text), against(run, above, text) if above else "")]
        spent = run.get("processor_seconds")
        lines.append([name, *cells, f"{spent:.0f}" if spent is not None else ""])
        above = run if name != "dense" else None
    return grid(lines) if len(lines) > 2 else ""


def methods_of(runs, pattern):
    """(method, its run) of those that are there, in their order."""
    found = ((method, runs.get(f"{pattern}, {method}")) for method in settings.METHODS)
    return [(method, run) for method, run in found if run]


def beside(run, other, texts):
    """Cells: both differences, and processor time as a multiple of the other's."""
    times = f"{run['processor_seconds'] / other['processor_seconds']:.2f}"
    return [*(against(run, other, text) for text in texts), times]


def table_against(runs, base, methods):
    """Those methods against one of them, by pattern."""
    texts = list(runs["dense"]["perplexity"])
    lines = [[f"against {base}", *texts, "times its processor seconds"]]
    for pattern in patterns_of(runs):
        other = runs.get(f"{pattern}, {base}")
        for method in methods if other else ():
            run = runs.get(f"{pattern}, {method}")
            if run:
                lines.append([f"{pattern}, {method}", *beside(run, other, texts)])
    return grid(lines) if len(lines) > 1 else ""


def table_samples(found):
    """Few samples and more training against many samples and less."""
    if not {"small", "main"} <= found.keys():
        return ""
    texts = list(found["small"]["dense"]["perplexity"])
    tokens = {name: f"{scale.samples * scale.sequence_length:,}" for name, scale in settings.SCALES.items()}
    lines = [["pattern", "this", "against this", *texts, "times its processor seconds"]]
    for pattern in settings.DRAWN_PATTERNS:
        for pair in SAMPLES_OR_TRAINING:
            run, other = (found[scale].get(f"{pattern}, {method}") for method, scale in pair)
            if run and other:
                names = (f"{method}, {tokens[scale]} tokens" for method, scale in pair)
                lines.append([pattern, *names, *beside(run, other, texts)])
    return grid(lines) if len(lines) > 1 else ""


def table_draws(runs):
    """Perplexities with several draws of calibration articles."""
    texts = list(runs["dense"]["perplexity"])
    lines = []
    for pattern in patterns_of(runs):
        for method in settings.DRAWN:
            name = f"{pattern}, {method}"
            names = [name, *(settings.drawn(name, draw) for draw in (1, 2))]
            if all(one in runs for one in names):
                lines.append([name, *(both(runs[one], texts) for one in names)])
    head = ["calibration articles: " + " / ".join(texts), "in order", "draw 1", "draw 2"]
    return grid([head, *lines]) if lines else ""


def commits(runs):
    """Which commit the runs are of; which ones are of others."""
    by_commit = collections.defaultdict(list)
    for name, run in runs.items():
        by_commit[run["commit"]].append(name)
    first, *others = sorted(by_commit, key=lambda commit: -len(by_commit[commit]))
    text = f"Every run is of commit {first}."
    if others:
        names = "\n".join(f"- {name}: {commit}" for commit in others for name in by_commit[commit])
        text = f"Runs are of commit {first}, but for these:\n\n{names}"
    return text


def table_losses(runs):
    """Mean over the layers: loss, certificate where there is one."""

    def cell(run):
        bound = certificate(run)
        return f"{mean_loss(run):.2%}" + (f", {bound:.0%}" if bound else "")

    return grid(by_pattern(runs, "loss, certificate", cell))


def sweep_table(runs, what, points):
    """Mean loss of a layer and perplexity along one setting: Table 3, Figure 3."""
    there = [(setting, runs[name]) for setting, (name, _) in points.items() if name in runs]
    if len(there) < 2:
        return ""
    texts = list(runs["dense"]["perplexity"])
    lines = [[what, "mean loss of a layer", *texts, "processor seconds"]]
    for setting, run in there:
        lines.append([str(setting), f"{mean_loss(run):.2%}", *(value(run, text) for text in texts),
                      f"{run['processor_seconds']:.0f}"])
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


def reductions(runs):
    """Reduction of the local loss against the warm start by type of matrix, of SparseFW's masks."""
    lines = []
    for pattern in patterns_of(runs):
        for method in SPARSEFW:
            run = runs.get(f"{pattern}, {method}")
            if run is None:
                continue
            by_type = collections.defaultdict(list)
            for layer in run["layers"]:
                kind = layer["name"].removesuffix(".weight").rpartition(".")[2].removesuffix("_proj")
                by_type[kind].append(1 - layer["losses"]["final"] / layer["losses"]["warm_start"])
            if not lines:
                lines.append(["reduction of the layer's loss", *by_type])
            lines.append([f"{pattern}, {method}",
                          *(f"{sum(values) / len(values):.0%}" for values in by_type.values())])
    return grid(lines) if lines else ""


def table_groups(runs, scale):
    """Perplexity of the runs of each group, every one against the first."""
    texts = list(runs["dense"]["perplexity"])
    what = HEADS[bool(scale.allocations), bool(scale.trainings)]
    groups = settings.groups(scale)
    firsts = {next(iter(names)) for names in groups.values()}
    against_first = f"against {min(firsts)}" if len(firsts) == 1 else "against the first"
    heads = [part for text in texts for part in (text, against_first)]
    lines = [[*what, *heads, "processor seconds"]]
    for label, names in groups.items():
        first = next(iter(names))
        base = runs.get(names[first])
        for method, name in names.items():
            run = runs.get(name)
            if run is None or base is None:
                continue
            cells = [
                part for text in texts
                for part in (value(run, text), against(run, base, text) if method != first else "")]
            lines.append([label, method, *cells, f"{run['processor_seconds']:.0f}"])
    return grid(lines)


def section(runs, scale):
    """What docs/results.md has of a scale."""
    if settings.is_grouped(scale):
        return f"{commits(runs)}\n\n{table_groups(runs, scale)}"
    parts = [commits(runs), *(table_pattern(runs, pattern) for pattern in patterns_of(runs))]
    parts += [table_against(runs, base, methods) for base, methods in COMPARED]
    parts.append(table_draws(runs))
    parts += [
        "Loss |WX - W'X|^2 in per cent of pruning everything, on the inputs that the run itself made, mean "
        "over the matrices. The certificate is the share of the mask's loss that no mask with the same fixed "
        "weights can avoid.",
        table_losses(runs), reductions(runs)]
    parts += [sweep_table(runs, what, points) for what, points in settings.sweeps(scale).items()]
    if settings.TRACED in runs:
        parts += ["Medians over the layers, " + settings.TRACED + ": reductions against the warm start.",
                  trace_table(runs[settings.TRACED])]
    return "\n\n".join(part for part in parts if part)


def draw(runs, scale, folder):
    """The plots of a scale."""
    if settings.is_grouped(scale):
        return
    if settings.TRACED in runs:
        plot_traces(runs[settings.TRACED], folder / f"iterations-{scale.name}.png")
    plot_sweeps(runs, settings.sweeps(scale), folder / f"sweeps-{scale.name}.png")
    plot_reductions(runs, scale.name, folder)


def paste(page, name, text):
    """`page` with everything between its markers of that name replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page must hold {begin} and {end}, once each, in this order")
    return f"{page.split(begin)[0]}{begin}\n{text}\n{end}{page.split(end)[1]}"


def fill(path, parts):
    """Writes into the page those parts, of {name: text}, that it has markers for."""
    page = path.read_text()
    there = [name for name in re.findall(r"<!-- ([a-z-]+):begin -->", page) if name in parts]
    if not there:
        raise ValueError(f"{path}: has markers for none of {', '.join(parts)}")
    for name in there:
        page = paste(page, name, parts[name])
    path.write_text(page)


def collect(folder, kept, tuned=None):
    """(runs by scale and name, {marker of a page: its text}), what the files `kept` have included.

    Args:
        tuned: a file of `sparsefw tune`.
    """
    scales = {scale.name: scale for scale in settings.SCALES.values() if scale is not settings.QUICK}
    for file in kept:
        for scale in scales.values():
            unpack(file, folder, scale, {"dense": {}, **settings.runs(scale)})
    found = read(folder, scales.values())
    parts = {f"runs-{name}": section(runs, scales[name]) for name, runs in found.items()}
    parts |= {f"summary-{name}": table_methods(runs, SHOWN) for name, runs in found.items()}
    parts["samples-or-training"] = table_samples(found)
    if tuned:
        parts["tune"] = grid(tune_table.lines(tuned, found))
    return found, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--from", dest="kept", type=kept_file, action="append", default=[], metavar="FILE",
                        help="also take what this file of --keep has")
    parser.add_argument("--keep", type=Path, help="also write every run to this JSON file")
    parser.add_argument("--page", type=Path, action="append", default=[],
                        help="also write the tables between this page's markers, as runs-main")
    parser.add_argument("--tune", type=kept_file, metavar="FILE", help="also the table of `sparsefw tune`")
    arguments = parser.parse_args()
    found, parts = collect(arguments.folder, arguments.kept, arguments.tune)
    if arguments.keep:
        keep(arguments.folder, arguments.keep)
    for name, runs in found.items():
        draw(runs, settings.SCALES[name], arguments.folder)
    for page in arguments.page:
        fill(page, parts)
    path = arguments.folder / "tables.md"
    path.write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()

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
        loss = sum(value / layer["losses"]["full"] for layer, value in pairs) / count
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
    kept = {key: value for key, value in run.items() if key not in ("layers", "curves", "dense", "out")}
    return {**kept, "columns": ["name", "kept", *COLUMNS, "seconds"], "layers": rows}


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
        parts += [f"{table}\n" for table in (table_cloze(runs), reductions(runs), seconds(runs)) if table]
        plot_reductions(runs, arguments.folder)
    path = arguments.folder / "tables.md"
    path.write_text("\n".join(parts))
    print(path.read_text())


if __name__ == "__main__":
    main()

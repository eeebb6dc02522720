"""Runs as JSON files, what is derived from their layers, and one file of all of them."""

import argparse
import collections
import hashlib
import json
import re
from pathlib import Path

import settings


def kept_file(text):
    """For argparse."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f'must be a file that --keep wrote; got "{text}"')
    return path


def file_of(folder, name, scale, options):
    """Where a run is kept: by its name and everything that decides its outcome."""
    facts = json.dumps([scale.name, scale.samples, scale.sequence_length, scale.windows, meaning(options)])
    short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return folder / "runs" / f"{short}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.json"


def meaning(options):
    """Options with what a preset stands for in this version: another meaning is another run."""
    preset = options.get("preset") if options.get("refine_blocks", True) else None
    return {**options, "meaning": settings.PRESETS[preset]} if preset else options


def write(path, run):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(run, indent=1) + "\n")
    partial.rename(path)


def read(folder, scales):
    """Runs of these scales by scale and name, each only where it is what the scale means by that name."""
    found = {}
    for scale in scales:
        there = {
            name: file_of(folder, name, scale, options)
            for name, options in {"dense": {}, **settings.runs(scale)}.items()
        }
        runs = {name: json.loads(path.read_text()) for name, path in there.items() if path.exists()}
        if "dense" in runs:
            found[scale.name] = runs
    return found


def loss_share(losses):
    """Relative to pruning everything, with new weights where there are any; with G itself."""
    unshrunk = losses.get("unshrunk")
    if unshrunk:
        return unshrunk["result"] / unshrunk["full"]
    return (losses["final"] if losses["reconstructed"] is None else losses["reconstructed"]) / losses["full"]


def mean_loss(run):
    """The mean loss of the layers, as `loss_share`."""
    shares = [loss_share(layer["losses"]) for layer in run["layers"]]
    return sum(shares) / len(shares)


def along_iterations(run):
    """{column: [(iteration, layers, 10 %, median, 90 %)]} over the layers.

    Losses as reductions against the warm start.
    """
    if "along_iterations" in run:
        return run["along_iterations"]
    found = {}
    for column in ("relaxed_loss", "rounded_loss", "threshold_residual"):
        by_iteration = collections.defaultdict(list)
        for layer in run["layers"]:
            start = layer["losses"]["warm_start"]
            for point in layer.get("trace", []):
                shown = point[column] if column == "threshold_residual" else 1 - point[column] / start
                by_iteration[point["iteration"]].append(shown)
        found[column] = [_spread(at, sorted(values)) for at, values in sorted(by_iteration.items())]
    return found


def _spread(at, values):
    count = len(values)
    return (at, count, *(_short(values[index]) for index in (count // 10, count // 2, count * 9 // 10)))


COLUMNS = ("full", "warm_start", "relaxed", "rounded", "final", "lower_bound", "reconstructed")
UNSHRUNK = ("full", "warm_start", "result")


def compact(run):
    """A run with a row a layer, six digits, for the repository."""
    layers = run.get("layers", [])
    if any("trace" in layer for layer in layers):
        run = {**run, "along_iterations": along_iterations(run)}
    # A file that is read later must know what its presets meant.
    run = {**run, "meaning": run.get("meaning") or meaning(run["options"])}
    kept = {key: value for key, value in run.items() if key not in ("layers", "curves", "dense", "out")}
    kept["perplexity"] = {
        text: {**found, "losses": [_short(value) for value in found["losses"]]}
        for text, found in run["perplexity"].items()
    }
    rows = [_row(layer) for layer in layers]
    # Experts without tokens have no losses with G itself.
    columns = max((list(row) for row in rows), key=len, default=[])
    return {**kept, "columns": columns, "layers": [[row.get(name) for name in columns] for row in rows]}


def _row(layer):
    losses = layer["losses"]
    row = {"name": layer["name"], "kept": layer["kept"], **{name: _short(losses[name]) for name in COLUMNS}}
    if losses.get("unshrunk"):
        row |= {f"unshrunk_{name}": _short(losses["unshrunk"][name]) for name in UNSHRUNK}
    return {**row, "seconds": _short(layer["seconds"])}


def expand(run):
    """The other way round: layers with their losses and seconds, without what compact left out."""
    layers = []
    for values in run["layers"]:
        row = dict(zip(run["columns"], values, strict=True))
        losses = {name: row[name] for name in COLUMNS}
        if row.get("unshrunk_full") is not None:
            losses["unshrunk"] = {name: row[f"unshrunk_{name}"] for name in UNSHRUNK}
        layers.append({"name": row["name"], "kept": row["kept"], "losses": losses, "seconds": row["seconds"]})
    return {**run, "layers": layers}


def _short(value):
    return value if value is None else float(f"{value:.6g}")


def keep(folder, path):
    """Every run in one file."""
    runs = [compact(json.loads(file.read_text())) for file in sorted((folder / "runs").glob("*.json"))]
    lines = (json.dumps(run) for run in runs)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def unpack(path, folder, scale, wanted):
    """Those of `wanted` (name: options) that the file of `keep` has, and the folder has not, as its runs.

    Returns:
        How many runs the file has of this scale.
    """
    count = 0
    for run in json.loads(path.read_text()):
        windows = {(of_text["length"], of_text["windows"]) for of_text in run["perplexity"].values()}
        if run.get("scale") != scale.name or windows != {(scale.sequence_length, scale.windows)}:
            continue
        if run["name"] in wanted and run["meaning"] == meaning(wanted[run["name"]]):
            count += 1
            target = file_of(folder, run["name"], scale, run["options"])
            if not target.exists():
                write(target, expand(run))
    return count

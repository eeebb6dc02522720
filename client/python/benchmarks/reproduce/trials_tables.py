"""Tables of the trials that a file has; trials.py writes them."""

import json
import statistics

import trials_settings
from tables import against, commits, grid, value

TEXTS = tuple(trials_settings.WINDOWS)


def read(path):
    """{name: run} of those runs that are what the settings mean by their names, and "dense"."""
    kept = {run["name"]: run for run in json.loads(path.read_text())["runs"]} if path.exists() else {}
    wanted = {name: trials_settings.meaning(trial) for name, trial in trials_settings.TRIALS.items()}
    wanted["dense"] = {"windows": trials_settings.WINDOWS}
    return {name: kept[name] for name, meaning in wanted.items()
            if name in kept and kept[name]["meaning"] == meaning}


def _mean(run, which):
    return statistics.fmean(block[which] for block in run["refinement"])


def table(runs, group):
    """A row a trial: perplexity of both texts, each against the row that it is compared with."""
    heads = [part for text in TEXTS for part in (text, "difference")]
    lines = [["trial", *heads, "error", "processor seconds"]]
    for name, trial in trials_settings.GROUPS[group].items():
        run, base = runs.get(name), runs.get(trial["base"])
        if run is None or (trial["base"] and base is None):
            continue
        cells = [part for text in TEXTS
                 for part in (value(run, text), against(run, base, text) if base else "")]
        shown = name if trial["base"] in (None, *_FIRST) else f"{name} (against {trial['base']})"
        lines.append([shown, *cells, f"{_mean(run, 'error_after'):.3f}", f"{run['processor_seconds']:.0f}"])
    return grid(lines) if len(lines) > 1 else ""


_FIRST = [next(iter(group)) for group in trials_settings.GROUPS.values()]


def table_saved(runs):
    """What the order of the channels saves of the loss, by kind of matrix."""
    lines = [["pattern", "attention's output", "down of the MLP", "largest difference of a dense logit",
              "seconds of search"]]
    for run in runs.values():
        facts = run.get("facts", {})
        if "saved" in facts:
            shares = [facts["saved"][kind] for kind in ("o", "down")]
            cells = [f"{statistics.fmean(one):.1%} ({min(one):.1%} to {max(one):.1%})" for one in shares]
            lines.append([run["meaning"]["options"]["pattern"], *cells, f"{facts['logits_differ_by']:.1e}",
                          f"{facts['search_seconds']:.0f}"])
    return grid(lines) if len(lines) > 1 else ""


def parts(runs):
    """{marker of a page: its text}"""
    dense = f"Dense: {' / '.join(value(runs['dense'], text) for text in TEXTS)}."
    tried = {name: run for name, run in runs.items() if name != "dense"}
    found = {
        f"trials-{group}": table(runs, group) for group in trials_settings.GROUPS
        if any(name in tried for name in trials_settings.GROUPS[group])}
    if "trials-refinement" in found:
        found["trials-refinement"] = f"{dense} {commits(tried)}\n\n{found['trials-refinement']}"
    if "trials-permutation" in found:
        found["trials-permutation"] += f"\n\n{table_saved(runs)}".rstrip()
    return found

"""The table that docs/results.md has of a file of `sparsefw tune`, beside runs of the whole model."""

import json

# (label, its options, scale and name of the run of the whole model)
CANDIDATES = (
    ("`balanced`, OWL", {"preset": "balanced", "allocation": "owl"}, "allocation", "60 % per-row, OWL"),
    ("Wanda, 4 epochs of refinement", {"method": "wanda", "refine_blocks": {"epochs": 4}}, "small",
     "60 % per-row, Wanda, refined"),
    ("ALPS, 4 epochs of refinement", {"method": "alps", "refine_blocks": {"epochs": 4}}, "small",
     "60 % per-row, ALPS, refined"),
    ("`balanced`", {"preset": "balanced"}, "small", "60 % per-row, preset balanced"),
    ("`fast`", {"preset": "fast"}, "small", "60 % per-row, preset fast"),
    ("ALPS", {"method": "alps"}, "small", "60 % per-row, ALPS"),
    ("Wanda", {"method": "wanda"}, "small", "60 % per-row, Wanda"),
)


def lines(path, found):
    """Rows, the least loss first.

    Args:
        found: runs by scale and name.
    """
    table = [["candidate", "loss, nats a token", "more than the best", "seconds",
              "whole model: wikipedia / handbook"]]
    for tried in sorted(json.loads(path.read_text())["candidates"], key=lambda one: one["loss"]):
        label, _, scale, name = next(one for one in CANDIDATES if one[1] == tried["options"])
        low, high = tried["interval"]
        more = f"{tried['difference']:+.3f} [{low:.3f}, {high:.3f}]" if tried["difference"] else ""
        run = found.get(scale, {}).get(name)
        whole = " / ".join(f"{of['value']:.2f}" for of in run["perplexity"].values()) if run else ""
        table.append([label, f"{tried['loss']:.4f}", more, f"{tried['seconds']:.0f}", whole])
    return table

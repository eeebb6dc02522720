"""Computes how long the model presets take for models of four sizes on one node, from the measured rates of
nodes.py. Writes the JSON, and the tables of README.md and docs/choosing.md.
"""

import argparse
import json
import time

import nodes
import shapes
import ways

KEPT = nodes.BENCHMARKS / "2026-11-28-preset-hours.json"
MEASURED = nodes.BENCHMARKS / "2026-11-25-smollm2-presets.json"
ROOT = nodes.BENCHMARKS.parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs/choosing.md"]

# preset of sparsefw.hf -> (epochs of refinement, epochs of distillation)
PRESETS = {"fast": (1, 0), "balanced": (3, 0), "best": (16, 8)}
SMOLLM2 = shapes.Model("SmolLM2-135M", 30, 576, 1536, 9, 3)
LLAMA_1B = shapes.Model("Llama-3.2-1B", 16, 2048, 8192, 32, 8)
# model -> (vocabulary, label in the table)
MODELS = {
    SMOLLM2: (49152, "135M"),
    LLAMA_1B: (128256, "1B"),
    shapes.LLAMA_3_8B: (128256, "8B"),
    shapes.LLAMA_3_70B: (128256, "70B"),
}
# Bytes a weight that distillation holds: BYTES_A_WEIGHT of sparsefw.hf.training.steps, and three copies in
# bfloat16: the model's, the one that is multiplied, and the state that may be kept.
DISTILLED = 17 + 3 * shapes.BFLOAT16


def distillation(run, vocabulary, epochs):
    """Seconds on the whole model: steps through blocks and head, and the divergence on held-back sequences.

    The head is not trained. A step takes it three times: forward, back to its inputs, and forward for the
    dense model's predictions.
    """
    held = max(1, run.sequences // 16)
    head = 2 * vocabulary * run.model.width * run.tokens
    step = run.model.blocks * run.step() + 3 * head / run.node.step
    judged = run.model.blocks * run.forward(held) + 2 * held * head / run.node.forward
    return epochs * (run.sequences - held) * step + (epochs + 1) * judged if epochs else 0.0


def seconds(model, node, preset, sequences=128, tokens=2048):
    """Seconds of a run on one node."""
    refined, distilled = PRESETS[preset]
    run = ways.Run(model, node, nodes.LINKS["10 GbE"], sequences=sequences, tokens=tokens, refined=refined)
    blocks = model.blocks * sum(ways.WAYS["list of servers"](run, 1).values())
    return blocks + distillation(run, MODELS[model][0], distilled)


def processor_seconds():
    """Measured: SmolLM2-135M at 60 % per-row with 8192 tokens, by preset."""
    runs = {run["name"]: run for run in json.loads(MEASURED.read_text()) if run["scale"] == "small"}
    found = {preset: runs[f"60 % per-row, preset {preset}"] for preset in PRESETS}
    return {
        preset: (run["processor_seconds"], run["perplexity"]["wikipedia"]["value"])
        for preset, run in found.items()
    }


def layer():
    """Measured: the layer presets of these names on a layer of 1024 x 1024, (loss / full loss, seconds).

    With a shrinkage the losses are those with the Gram matrix itself.
    """
    [ways_of] = [
        one["ways"]
        for one in nodes.read(nodes.METHODS)["methods"]
        if (one["layer"], one["pattern"]) == ("synthetic 1024x1024", "per_row")
    ]
    found = {}
    for preset in PRESETS:
        way = ways_of[f"preset {preset}"]
        if way["unshrunk"]:
            share = way["unshrunk"]["loss"] / way["unshrunk"]["full_loss"]
        else:
            share = way["final_loss"] / way["full_loss"]
        found[preset] = (share, way["seconds"])
    return found


def compute():
    two, cores, gpu = nodes.kinds("fast")
    measured = processor_seconds()
    return {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "command": "client/python/benchmarks/scale/presets.py --keep",
        "measured": {
            "source": MEASURED.name,
            "model": SMOLLM2.name,
            "tokens": 16 * 512,
            "processor_seconds": {preset: round(found, 1) for preset, (found, _) in measured.items()},
            "wikipedia": {preset: round(value, 2) for preset, (_, value) in measured.items()},
            # The measured machine has AMX, that of the rates has not.
            "computed_processor_seconds": {
                preset: round(2 * seconds(SMOLLM2, two, preset, 16, 512), 1) for preset in PRESETS
            },
        },
        "layer": {
            "source": nodes.METHODS,
            **{preset: [round(share, 5), round(spent, 3)] for preset, (share, spent) in layer().items()},
        },
        "inputs": {
            "nodes": [node.source for node in (two, cores, gpu)],
            "sequences": 128,
            "tokens": 2048,
            "epochs of refinement and distillation": PRESETS,
        },
        "hours": [
            {
                "model": model.name,
                "node": node.name,
                **{preset: round(seconds(model, node, preset) / 3600, 3) for preset in PRESETS},
            }
            for model in MODELS
            for node in (two, cores, gpu)
        ],
        "distillation_gigabytes": {
            model.name: round(DISTILLED * model.blocks * model.weights / 1e9) for model in MODELS
        },
    }


def duration(hours):
    if hours < 1:
        return f"{60 * hours:.0f} min" if hours >= 1 / 60 else f"{3600 * hours:.0f} s"
    return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"


def table(result):
    """Rows: a layer, a model of 135M weights, both measured; then computed times of larger models."""

    def row(head, cells):
        return "| " + " | ".join([head, *cells]) + " |"

    found = result["measured"]
    one = result["layer"]
    lines = [
        row("", (f"`{preset}`" for preset in PRESETS)),
        "|---" * (len(PRESETS) + 1) + "|",
        row("**measured**, two cores", [""] * len(PRESETS)),
        row("layer of 1024²: loss", (f"{100 * one[preset][0]:.2f} %" for preset in PRESETS)),
        row("seconds", (f"{one[preset][1]:.2g}" for preset in PRESETS)),
        row("135M model, 8192 tokens: perplexity", (f"{of:.1f}" for of in found["wikipedia"].values())),
        row("processor seconds", (f"{of:.0f}" for of in found["processor_seconds"].values())),
        row("**computed**: 262 144 tokens, two cores / 64 cores", [""] * len(PRESETS)),
    ]
    times = {(of["model"], of["node"]): of for of in result["hours"]}
    for model, (_, label) in MODELS.items():
        cells = (
            " / ".join(duration(times[model.name, node][preset]) for node in ("two cores", "64 cores"))
            for preset in PRESETS
        )
        lines.append(row(f"{label} model", cells))
    return "\n".join(lines)


def paste(page, text):
    begin, end = "<!-- preset-hours:begin -->", "<!-- preset-hours:end -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the JSON and the tables")
    options = parser.parse_args()
    result = compute()
    if options.keep:
        KEPT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        for page in PAGES:
            page.write_text(paste(page.read_text(), table(result)))
    print(table(result))
    print(json.dumps(result["measured"], indent=1), result["distillation_gigabytes"])


if __name__ == "__main__":
    main()

"""Simulates pruning of Llama-3-8B and 70B on 1 to 256 nodes in three ways: where does each stop to scale?

Measured and assumed inputs are named in the output (nodes.py has them, ways.py has the steps).
"""

import argparse
import dataclasses
import itertools
import json
import math
import time

import nodes
import shapes
import ways

DOCS = nodes.BENCHMARKS.parent
KEPT = nodes.BENCHMARKS / "2026-11-26-scale-simulation.json"
NODES = [2**power for power in range(9)]
# A way has stopped to scale where twice the nodes are less than so many times as fast.
WORTH_IT = 1.2
# Nodes at which the output says what the time went to.
EXPLAINED = (1, 16, 64)
EPOCHS = 3  # of refinement, in the preset balanced

# (label, way, link, what differs from ways.Run, preset)
SERIES = [
    ("list of servers, parts by servers", "list of servers, parts by servers", "10 GbE", {}, "paper"),
    ("list of servers", "list of servers", "10 GbE", {}, "paper"),
    ("list of servers, passes cost nothing", "list of servers", "10 GbE", {"free": True}, "paper"),
    ("list of servers, balanced", "list of servers", "10 GbE", {"refined": EPOCHS}, "balanced"),
    *((f"Ray, {link}", "Ray", link, {}, "paper") for link in nodes.LINKS),
    ("Ray, a Gram matrix in one piece, 10 GbE", "Ray", "10 GbE", {"strips": 1}, "paper"),
    ("Ray, 64 shards, 100 GbE", "Ray", "100 GbE", {"strips": 64, "shards": 64}, "paper"),
    ("Ray, Gram matrices passed on, 10 GbE", "Ray", "10 GbE", {"spread": True}, "paper"),
    ("Ray, balanced, 10 GbE", "Ray", "10 GbE", {"refined": EPOCHS}, "balanced"),
    ("Ray, balanced, 100 GbE", "Ray", "100 GbE", {"refined": EPOCHS}, "balanced"),
]
# Label, color and style of the lines that are drawn.
DRAWN = {
    "list of servers, parts by servers": ("list of servers, rows divided by their number", "tab:gray", "--"),
    "list of servers": ("list of servers, rows divided by shape", "tab:gray", "-"),
    "Ray, 10 GbE": ("Ray, 10 GbE", "tab:blue", "-"),
    "Ray, 100 GbE": ("Ray, 100 GbE", "tab:blue", "--"),
    "Ray, balanced, 10 GbE": ("Ray, preset balanced (refined), 10 GbE", "tab:red", "-"),
}


def run_of(model, node, link, differs):
    differs = dict(differs)
    if differs.pop("free", False):
        node = dataclasses.replace(node, forward=math.inf, gram=math.inf)
    return ways.Run(model, node, nodes.LINKS[link], **differs)


def stops_at(seconds):
    """The most nodes that are worth it: twice as many are never again WORTH_IT times as fast."""
    gains = [before / after >= WORTH_IT for before, after in itertools.pairwise(seconds)]
    return NODES[max((index + 1 for index, worth in enumerate(gains) if worth), default=0)]


def series(model, index):
    """Every line of one model on the node of this index."""
    for label, way, link, differs, preset in SERIES:
        # The preset balanced takes the jobs of fast.
        node = nodes.kinds("fast" if preset == "balanced" else "paper")[index]
        run = run_of(model, node, link, differs)
        phases = [ways.WAYS[way](run, count) for count in NODES]
        seconds = [model.blocks * sum(of_block.values()) for of_block in phases]
        yield {
            "model": model.name,
            "node": node.name,
            "line": label,
            "way": way,
            "link": link,
            "preset": preset,
            **differs,
            "nodes": NODES,
            "hours": [round(one / 3600, 4) for one in seconds],
            "stops_at": stops_at(seconds),
            "seconds_of_a_block": {
                count: {name: round(one, 2) for name, one in of_block.items()}
                for count, of_block in zip(NODES, phases, strict=True)
                if count in EXPLAINED
            },
        }


def gradients(model, node):
    """When would it pay to divide refinement's gradients among nodes? They are added after every step: every
    node sends and gets 2 (M - 1) / M times the float32 gradients of a block, in a ring of M nodes.

    Divided within a sequence the steps stay what they are: M nodes need t / M + ring for a step of t seconds.
    With a sequence on every node there are M times fewer steps: t + ring for M sequences.
    """
    run = run_of(model, node, "10 GbE", {"refined": EPOCHS})
    size, step = shapes.FLOAT32 * model.weights, run.step()
    found = {
        "model": model.name,
        "node": node.name,
        "gradient_bytes": size,
        "seconds_of_a_step": round(step, 4),
        "hours_of_refinement": round(model.blocks * run.refinement() / 3600, 3),
        # Two nodes: t / 2 + size / rate < t, and t + size / rate < 2 t.
        "bits_a_second_at_which_two_nodes_pay": {
            "within a sequence": round(2 * 8 * size / step),
            "a sequence each": round(8 * size / step),
        },
    }
    for link, rate in nodes.LINKS.items():

        def ring(count, rate=rate):
            return 2 * (count - 1) / count * size / rate

        found[link] = {
            "within a sequence": best({count: step / (step / count + ring(count)) for count in NODES}),
            "a sequence each": best({count: count * step / (step + ring(count)) for count in NODES[:5]}),
        }
    return found


def best(speedups):
    count = max(speedups, key=speedups.__getitem__)
    return {"nodes": count, "speedup": round(speedups[count], 2)}


def simulate():
    models = [shapes.LLAMA_3_8B, shapes.LLAMA_3_70B]
    kinds, fast = nodes.kinds("paper"), nodes.kinds("fast")
    run = ways.Run(models[0], kinds[0], nodes.LINKS["10 GbE"])
    return {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "command": "client/python/benchmarks/scale/simulate.py --keep",
        "inputs": {
            "nodes": [dataclasses.asdict(node) for node in kinds],
            "solve_with_preset_fast": {
                **{node.name: node.solve for node in fast},
                "source": nodes.solves()["fast"][1],
            },
            "links": {
                "bytes_a_second": nodes.LINKS,
                "source": "assumed: nine tenths of the nominal rate, full duplex",
            },
            "models": [dataclasses.asdict(model) for model in models],
            "sequences": run.sequences,
            "tokens": run.tokens,
            "shards": run.shards,
            "split_above": ways.SPLIT_ABOVE,
            "strips": run.strips,
            "strip_bytes": ways.STRIP_BYTES,
            "gram_memory": ways.GRAM_MEMORY,
            "hidden_states_renewed": ways.RENEWED,
            "assumptions": [
                "the cost of a solve grows as rows times the square of columns, that of passes as operations",
                "a switch that limits nobody; no latency; no failure; memory and disk are large enough",
                "nodes that need a Gram matrix pull it from the nodes that made it",
                "the client or driver is on the first node, of the same kind as the others",
                "jobs make masks; results and pruned blocks are those, but for refined blocks",
                "one solve a node at a time; a job's transfers do not overlap with the solve before it",
                "reading the model and the start of Ray are left out",
            ],
        },
        "series": [line for model in models for index in range(len(kinds)) for line in series(model, index)],
        "gradients": [gradients(model, node) for model in models for node in fast],
    }


def table(result):
    """Rows for the page: hours, and the nodes at which each way stops to scale."""
    columns = {
        "list of servers": "list of servers",
        "Ray, 10 GbE": "Ray, 10 GbE",
        "Ray, 100 GbE": "Ray, 100 GbE",
        "Ray, balanced, 10 GbE": "Ray, 10 GbE, preset `balanced`",
    }
    head = ["model, nodes", "one node", *columns.values()]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for model in result["inputs"]["models"]:
        for node in result["inputs"]["nodes"]:
            of = {
                line["line"]: line
                for line in result["series"]
                if (line["model"], line["node"]) == (model["name"], node["name"])
            }
            cells = [hours(of["Ray, 10 GbE"]["hours"][0]), *(cell(of[name]) for name in columns)]
            lines.append(f"| {model['name']}, {node['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(line):
    stop = line["stops_at"]
    one, then = line["hours"][0], line["hours"][line["nodes"].index(stop)]
    return f"{stop} nodes, {hours(then)}" if stop > 1 else f"one node, {hours(one)}"


def hours(value):
    return f"{value:.0f} h" if value >= 10 else f"{value:.2g} h"


def paste(page, text):
    begin, end = "<!-- simulation:begin -->", "<!-- simulation:end -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def as_json(result):
    """One line an entry of a list, or a value."""
    lines = []
    for key, value in result.items():
        name = json.dumps(key)
        if isinstance(value, list):
            entries = ",\n  ".join(json.dumps(entry, ensure_ascii=False) for entry in value)
            lines.append(f"{name}: [\n  {entries}\n ]")
        elif isinstance(value, dict):
            entries = ",\n  ".join(
                f"{json.dumps(inner)}: {json.dumps(of, ensure_ascii=False)}" for inner, of in value.items()
            )
            lines.append(f"{name}: {{\n  {entries}\n }}")
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def draw(result, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    names = [
        (model["name"], node["name"])
        for model in result["inputs"]["models"]
        for node in result["inputs"]["nodes"]
    ]
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), sharex=True, layout="constrained")
    for (model, node), axis in zip(names, axes.flat, strict=True):
        for line in result["series"]:
            if (line["model"], line["node"]) == (model, node) and line["line"] in DRAWN:
                label, color, style = DRAWN[line["line"]]
                axis.plot(line["nodes"], line["hours"], style, color=color, label=label, linewidth=1.8)
                stop = line["nodes"].index(line["stops_at"])
                axis.plot(line["nodes"][stop], line["hours"][stop], "o", color=color, markersize=6)
        axis.set(xscale="log", yscale="log", title=f"{model}, {node}")
        axis.set_xticks(NODES, [str(count) for count in NODES])
        axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("nodes")
    for axis in axes[:, 0]:
        axis.set_ylabel("hours for the model (simulated)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep",
        action="store_true",
        help=f"writes {KEPT.name}, docs/scale.png, the table of docs/scale.md; needs Matplotlib",
    )
    options = parser.parse_args()
    result = simulate()
    if options.keep:
        KEPT.write_text(as_json(result))
        draw(result, DOCS / "scale.png")
        page = DOCS / "scale.md"
        page.write_text(paste(page.read_text(), table(result)))
    for line in result["series"]:
        of_each = " ".join(f"{one:8.3f}" for one in line["hours"])
        name = f"{line['model']:12} {line['node']:10} {line['line']:42}"
        print(f"{name} {of_each}  stops at {line['stops_at']}")


if __name__ == "__main__":
    main()

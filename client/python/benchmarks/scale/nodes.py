"""How fast a node and its link are: what was measured, from docs/benchmarks, and what is assumed."""

import dataclasses
import json
from pathlib import Path

from shapes import LLAMA_3_8B

BENCHMARKS = Path(__file__).resolve().parents[4] / "docs/benchmarks"
LATE = "2026-11-23-late-4096.json"
METHODS = "2026-11-26-methods-2core.json"
NODE = "2026-11-28-scale-node.json"
SERVICE = "2026-11-25-service-beside-9e62e23.json"
# Bytes a second that a link carries: nine tenths of its bits.
LINKS = {"10 GbE": 1.1e9, "25 GbE": 2.8e9, "100 GbE": 11e9}


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine that solves one job at a time.

    Attributes:
        solve:    seconds of a solve by rows times the square of columns.
        forward, gram, step: operations a second of a forward pass, of Gram sums, and of a step of refinement,
            whose operations are three times those of a forward pass.
        receive:  bytes a second of an upload into the node's own server.
        overhead: seconds of a job besides transfer and solve.
        source:   where these come from.
    """

    name: str
    solve: float
    forward: float
    gram: float
    step: float
    receive: float
    overhead: float
    source: str


def read(name):
    return json.loads((BENCHMARKS / name).read_text())


def solves():
    """Seconds by rows times the square of columns, of the jobs of two presets, 60 % per-row on two cores, and
    the file that says so."""
    [paper] = [
        one["solve"]["seconds"]
        for one in read(LATE)["late"]
        if (one["rows"], one["pattern"], one["alpha"], one["threads"]) == (4096, "per_row", 0.9, 2)
    ]
    [fast] = [
        one["ways"]["preset fast"]["seconds"]
        for one in read(METHODS)["methods"]
        if one["layer"] == "synthetic 1024x1024" and one["pattern"] == "per_row"
    ]
    return {
        "paper": (paper / 4096**3, f"{LATE}: {paper:.1f} s for 4096x4096"),
        "fast": (fast / 1024**3, f"{METHODS}: {fast:.2f} s for 1024x1024"),
    }


def two_cores(preset):
    """The node that was measured."""
    solve, source = solves()[preset]
    found = read(NODE)
    seconds = {name: one["processor"] for name, one in found["seconds_of_a_sequence"].items()}
    forward = LLAMA_3_8B.forward_operations(found["tokens"])
    grams = sum(seconds[f"gram_{columns}"] for _, columns in LLAMA_3_8B.grams)
    return Node(
        "two cores",
        solve,
        forward / seconds["forward"],
        LLAMA_3_8B.gram_operations(found["tokens"]) / grams,
        3 * forward / seconds["refinement_step"],
        read(SERVICE)["this 1"]["upload"]["bytes_per_second"]["server"],
        0.03,
        f"solve: {source}, two threads; forward, gram, step: {NODE}, processor seconds over two cores; "
        f"receive: {SERVICE}; overhead: assumed, 30 ms",
    )


def kinds(preset):
    """The node that was measured, and two that are assumed."""
    two = two_cores(preset)
    cores = dataclasses.replace(
        two,
        name="64 cores",
        solve=two.solve / 32,
        forward=32 * two.forward,
        gram=32 * two.gram,
        step=32 * two.step,
        source="assumed: 32 times two cores, with the same receive and overhead",
    )
    gpu = Node(
        "a GPU",
        two.solve / 76,
        300e12,
        40e12,
        300e12,
        10 * two.receive,
        0.03,
        "assumed: solves 76 times as fast as two cores (the block of Llama-3-8B in 10 s with preset paper), "
        "300 TFLOP/s in bfloat16, 40 TFLOP/s in float32, receives ten times as fast; no GPU was measured",
    )
    return [two, cores, gpu]

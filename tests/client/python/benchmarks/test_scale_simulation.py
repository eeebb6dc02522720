"""The simulation of many machines, client/python/benchmarks/scale, where the answer is known."""
import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "client/python/benchmarks/scale"))

import nodes  # noqa: E402
import presets  # noqa: E402
import shapes  # noqa: E402
import simulate  # noqa: E402
import ways  # noqa: E402
from network import Network, take_in_turn  # noqa: E402

MODEL = shapes.LLAMA_3_8B


def free_transfers(**differs):
    """A run in which bytes and jobs cost nothing besides the work itself."""
    node = dataclasses.replace(nodes.two_cores("paper"), receive=math.inf, overhead=0.0)
    return ways.Run(MODEL, node, math.inf, **differs)


def longest_first(jobs, count):
    """The end of list scheduling, by its definition."""
    ends = [0.0] * count
    for seconds in jobs:
        ends[ends.index(min(ends))] += seconds
    return max(ends)


def solves(run, names=("qkv", "o", "gate", "down")):
    return [run.solve(job.rows, job.columns) for job in ways.jobs_of(run.model, names, ways.by_shape)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16, 60, 256])
def test_without_transfers_jobs_are_list_scheduled(count):
    run = free_transfers()
    phases = ways.block_of_ray(run, count)
    jobs = solves(run)
    assert phases["jobs"] == pytest.approx(longest_first(jobs, count))
    least = max(sum(jobs) / count, max(jobs))
    assert least - 1e-6 <= phases["jobs"] <= (4 / 3) * least + 1e-6
    rounds = math.ceil(run.shards / min(count, run.shards))
    assert phases["passes"] == pytest.approx(
        rounds / run.shards * (2 * run.forward(run.sequences) + run.gram(run.sequences, ["qkv", "o", "gate", "down"])))
    assert {name for name, seconds in phases.items() if seconds > 1e-9} == {"jobs", "passes"}
    servers = ways.block_of_list(run, count, ways.by_shape)
    assert servers["jobs"] == pytest.approx(phases["jobs"])


def test_with_one_node_all_is_done_in_turn():
    run = ways.Run(MODEL, nodes.two_cores("paper"), nodes.LINKS["10 GbE"])
    names = ["qkv", "o", "gate", "down"]
    received = sum(MODEL.gram_bytes(shapes.FLOAT32).values()) / run.node.receive
    expected = 2 * run.forward(128) + run.gram(128, names) + received + sum(solves(run))
    for way in ("list of servers", "Ray"):
        assert sum(ways.WAYS[way](run, 1).values()) == pytest.approx(expected)
    refined = dataclasses.replace(run, refined=3)
    more = run.forward(128) + 3 * 120 * run.step() + 4 * run.forward(8)
    for way in ("list of servers", "Ray"):
        assert sum(ways.WAYS[way](refined, 1).values()) == pytest.approx(expected + more)


def test_a_client_sends_every_gram_matrix_to_every_server():
    run = free_transfers()
    slow = dataclasses.replace(run, link=1e9)
    size = sum(MODEL.gram_bytes(shapes.FLOAT32).values())
    assert size == 976 * 2**20
    for count in (2, 64):
        assert ways.block_of_list(slow, count, ways.by_shape)["Gram matrices"] == pytest.approx((count - 1) * size / 1e9)


def test_parts_are_those_of_the_shape():
    jobs = ways.jobs_of(MODEL, ["qkv", "o", "gate", "down"], ways.by_shape)
    assert len(jobs) == 4 + 1 + 1 + 4 + 14 + 14 + 14
    assert sum(job.rows * job.columns for job in jobs) == MODEL.weights == 218103808
    assert [job.gram for job in jobs[:15]] == ["down"] * 14 + ["qkv"]
    assert len(ways.jobs_of(MODEL, ["down"], ways.by_servers(3))) == 3
    assert ways.passes(MODEL) == [["qkv", "o", "gate", "down"]]
    assert ways.passes(shapes.LLAMA_3_70B) == [["qkv", "o", "gate"], ["down"]]


@pytest.mark.parametrize("strips", [1, 16])
def test_partial_sums_cross_the_network_once(strips):
    run = dataclasses.replace(free_transfers(strips=strips), link=1e9)
    network = Network(16, 1e9)
    found = ways.add_partials(run, network, list(range(16)), "down", 0.0)
    size = 4 * 14336**2
    assert sum(network.sent) == pytest.approx(15 * size)
    assert sum(one for _, one, _ in found) == pytest.approx(size)
    last = max(there for _, _, there in found)
    # One node gets them all, or every node a sixteenth of each.
    assert last == pytest.approx(15 * size / 1e9 / strips)


def test_transfers_share_links_and_nothing_else():
    network = Network(4, 10)
    assert network.send(0, 0, 100, 3.0) == 3.0
    assert network.send(0, 1, 100, 0.0) == 10.0
    assert network.send(2, 3, 100, 0.0) == 10.0
    assert network.send(0, 2, 100, 0.0) == 20.0  # the same uplink
    assert network.send(3, 1, 100, 0.0) == 20.0  # the same downlink
    assert network.sent == [200, 0, 100, 100]


def test_idle_nodes_take_the_next_job():
    taken = []

    def start(node, job, time):
        taken.append((node, time, job))
        return time + job

    assert take_in_turn([0.0, 5.0], [4, 3, 2], start, lambda node, job, time: time) == 7.0
    assert taken == [(0, 0.0, 4), (0, 4.0, 3), (1, 5.0, 2)]
    assert take_in_turn([1.0], [], start, lambda node, job, time: time) == 1.0


def test_where_a_way_stops():
    assert simulate.stops_at([1 / count for count in simulate.NODES]) == 256
    assert simulate.stops_at([1.0] * 9) == 1
    assert simulate.stops_at([8, 4, 2, 1, 0.9, 0.9, 0.9, 0.9, 5]) == 8


def test_page_and_kept_figures_are_what_the_program_makes():
    made = json.loads(json.dumps(simulate.simulate()))
    kept = json.loads(simulate.KEPT.read_text())
    again = "client/python/benchmarks/scale/simulate.py --keep"
    assert {**made, "date": kept["date"]} == kept, again
    assert simulate.table(made) in (ROOT / "docs/scale.md").read_text(), again


def test_distillation_is_steps_on_the_whole_model():
    run = ways.Run(MODEL, nodes.two_cores("fast"), math.inf)
    steps = 8 * 120 * MODEL.blocks * run.step()
    assert presets.distillation(run, 0, 8) == pytest.approx(steps + 9 * MODEL.blocks * run.forward(8))
    assert presets.distillation(run, 128256, 8) > steps * 1.05
    assert presets.distillation(run, 128256, 0) == 0
    assert presets.seconds(MODEL, run.node, "fast") < presets.seconds(MODEL, run.node, "balanced") < presets.seconds(
        MODEL, run.node, "best")


def test_hours_of_the_presets_are_what_the_program_makes():
    made = json.loads(json.dumps(presets.compute()))
    kept = json.loads(presets.KEPT.read_text())
    again = "client/python/benchmarks/scale/presets.py --keep"
    assert {**made, "date": kept["date"]} == kept, again
    for page in presets.PAGES:
        assert presets.table(made) in page.read_text(), again
    # The rates predict the runs that were measured on another processor, which has AMX.
    for preset, spent in made["measured"]["processor_seconds"].items():
        assert 0.8 < made["measured"]["computed_processor_seconds"][preset] / spent < 1.25

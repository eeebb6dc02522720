"""Measures runs on raylets of this machine; prints JSON.

    cluster.py simulated|overhead|lost|memory|kills|speed|model [--out FILE] [--model FOLDER] [--text FILE]
               [--kills N] [--nodes N ...] [--pause LEAST MOST]

simulated: 64 jobs that sleep for a second, on one and on eight nodes of one core
overhead:  seconds of a job beside its solve, over many small ones
lost:      seconds from Ray's word that the only worker is lost until another one on that node has its job;
           --kills times
memory:    the driver's peak memory with 128 and with 512 sequences
kills:     a small model on each number of nodes, which are killed and added at seeded times until N kills;
           beside the bits of server="auto"
speed:     the first 16 blocks of --model on one node of one core and on two, while nothing else runs; every
           node's processes have a core of their own
model:     the same with the periods of tests; then all of it with two kills, beside the bits of server="auto"
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
# The raylets and their workers get these.
os.environ.setdefault("SPARSEFW_SERVER_PROGRAM", str(ROOT / "build/bin/sparsefw-server"))
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("SPARSEFW_BIN_DIR", str(ROOT / "build/bin"))
if sys.argv[1:2] == ["speed"]:  # nothing is killed: Ray's own periods, not the short ones of tests
    os.environ.update(
        RAY_health_check_initial_delay_ms="5000",
        RAY_health_check_period_ms="3000",
        RAY_debug_dump_period_milliseconds="10000",
    )
sys.path[:0] = [str(ROOT / "tests/client/python/hf"), str(ROOT / "tests/integration")]

import clusters  # noqa: E402
import psutil  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from sparsefw._cluster.worker import Done, Started, Worker  # noqa: E402
from sparsefw.hf import Ray, prune_model  # noqa: E402
from sparsefw.hf.cluster.facts import Facts  # noqa: E402
from sparsefw.hf.cluster.workers import Workers  # noqa: E402

torch.set_num_threads(1)
# Blocks that the timed runs leave dense, and all but one.
LATER, FIRST = r"layers\.(1[6-9]|[2-9]\d)\.", r"layers\.([1-9]|[1-9]\d)\."


@dataclasses.dataclass(frozen=True)
class Sleep:
    """A job without work."""

    name: str
    seconds: float


class Sleeper:
    """An actor that sleeps in place of solving."""

    def __init__(self, environment: Any, flags: Any) -> None:
        self._node = str(ray.get_runtime_context().get_node_id())

    def start(self) -> Started:
        """As a worker."""
        return Started(self._node, "none", "none")

    def seen(self) -> None:
        """As a worker."""

    def solve(self, job: Sleep) -> Done:
        """As a worker."""
        time.sleep(job.seconds)
        return Done(self._node)


@dataclasses.dataclass(frozen=True)
class Noted(Sleep):
    """A job that says in a file when and where it begins."""

    path: str


class Noting(Worker):
    """A worker, with its server, that sleeps in place of solving."""

    def solve(self, job: Noted) -> Done:
        """As a worker."""
        with open(job.path, "a") as file:
            file.write(f"{time.time()} {os.getpid()}\n")
        time.sleep(job.seconds)
        return Done(self._node)


def lost(kills: int) -> dict[str, Any]:
    found = []
    with tempfile.TemporaryDirectory() as name, clusters.cluster(1):
        for number in range(kills):
            facts, job = Facts(), Noted("job", 2.0, f"{name}/{number}")
            told: list[float] = []

            def kill(ended: Any, facts: Facts = facts, job: Noted = job, told: list[float] = told) -> None:
                while not os.path.exists(job.path):
                    time.sleep(0.01)
                time.sleep(0.5)
                psutil.Process(int(Path(job.path).read_text().split()[1])).kill()
                while not facts.lost_workers and not ended.wait(0.005):
                    pass
                told.append(time.time())

            with Workers(Ray(cpus=1), 1, facts, Noting) as workers, clusters.meanwhile(kill):
                workers.start()
                assert len(list(workers.run([job], [0], lambda *_: None))) == 1
            (_, _), (again, _) = (line.split() for line in Path(job.path).read_text().splitlines())
            found.append(float(again) - told[0])
    return {"seconds": found, "longest": max(found)}


def simulated() -> dict[str, Any]:
    jobs = [Sleep(f"job {index}", 1.0) for index in range(64)]
    seconds = {}
    for count in (1, 8):
        with clusters.cluster(count), Workers(Ray(cpus=1), 1, Facts(), Sleeper) as workers:
            workers.start(count)
            started = time.monotonic()
            assert len(list(workers.run(jobs, range(64), lambda *_: None))) == 64
            seconds[count] = time.monotonic() - started
    return {"seconds": seconds, "times_as_fast": seconds[1] / seconds[8]}


def small_model(folder: Path, layers: int, hidden: int, inner: int) -> Path:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=inner,
        max_position_embeddings=1024,
        initializer_range=0.1,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.float32)
    model.save_pretrained(folder / "dense")
    return folder / "dense"


def tokens(count: int, length: int) -> Any:
    return torch.randint(0, 256, (count, length), generator=torch.Generator().manual_seed(5))


def bits(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def overhead() -> dict[str, Any]:
    """Matrices of 64 inputs solve in milliseconds: the rest of a job's time is what placing it costs."""
    with tempfile.TemporaryDirectory() as name, clusters.cluster(1):
        dense = small_model(Path(name), 8, 64, 128)
        report = prune_model(
            dense,
            data=tokens(8, 32),
            sparsity=0.5,
            method="wanda",
            split_above=256,
            gram="client",
            server=Ray(cpus=1),
            progress=False,
        )
    (node,) = report.cluster["nodes"].values()
    solving = sum(row["seconds"] for row in report.layers)
    return {
        "jobs": node["jobs"],
        "driver_seconds_per_job": report.cluster["waited"]["jobs"] / node["jobs"],
        "worker_seconds_per_job": node["seconds"] / node["jobs"],
        "solve_seconds_per_job": solving / node["jobs"],
        "gram_seconds_per_job": node["gram_seconds"] / node["jobs"],
    }


def peak_memory(found: dict[str, int]) -> Any:
    """The largest private memory of this process. Pages of the object store are Ray's."""
    process = psutil.Process()

    def watch(ended: Any) -> None:
        while not ended.wait(0.02):
            memory = process.memory_info()
            found["peak"] = max(found.get("peak", 0), memory.rss - memory.shared)

    return clusters.meanwhile(watch)


def memory(samples: int) -> dict[str, Any]:
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name, clusters.cluster(2, store=400 << 20):
        dense = small_model(Path(name), 4, 256, 512)
        with peak_memory(found):
            prune_model(
                dense,
                data=tokens(samples, 512),
                samples=samples,
                sparsity=0.5,
                method="wanda",
                refine_blocks={"epochs": 1},
                gram="client",
                server=Ray(cpus=1),
                progress=False,
            )
    return {"sequences": samples, "hidden_state_bytes": samples * 512 * 256 * 4, "peak_bytes": found["peak"]}


def kills(wanted: int, counts: list[int], pause: list[float]) -> dict[str, Any]:
    options = {
        "data": tokens(24, 32),
        "sparsity": 0.5,
        "iterations": 60,
        "split_above": 2048,
        "gram": "client",
        "refine_blocks": {"epochs": 2},
        "progress": False,
    }
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dense = small_model(folder, 12, 64, 96)
        prune_model(dense, out=folder / "auto", server="auto", **options)
        expected = bits(folder / "auto")
        for count in counts:
            with clusters.cluster(count) as nodes:
                before = 0
                while nodes.kills < wanted:
                    out = folder / f"ray-{len(runs)}"
                    started = time.monotonic()
                    with clusters.killing(nodes, 100 * count + len(runs), pause, wanted - before):
                        report = prune_model(dense, out=out, server=Ray(cpus=1), **options)
                    runs.append(
                        {
                            "nodes": count,
                            "kills": nodes.kills - before,
                            "seconds": time.monotonic() - started,
                            "equal": bits(out) == expected,
                            "lost_workers": report.cluster["lost_workers"],
                            "retries": report.cluster["retries"],
                        }
                    )
                    print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
                    before = nodes.kills
    return {
        "runs": runs,
        "kills": sum(run["kills"] for run in runs),
        "equal": all(run["equal"] for run in runs),
    }


def pin(nodes: Any) -> None:
    """Each raylet and what it starts get a core of their own. The head and the driver run on both."""
    for core, node in zip(sorted(os.sched_getaffinity(0)), nodes.nodes, strict=False):
        (raylet,) = node.all_processes["raylet"]
        process = psutil.Process(raylet.process.pid)
        for each in (process, *process.children(recursive=True)):
            for thread in each.threads():
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(thread.id, [core])


def model(dense: Path, text: str, whole: bool) -> dict[str, Any]:
    options = {
        "data": text,
        "samples": 16,
        "sequence_length": 512,
        "sparsity": 0.6,
        "method": "sparsefw",
        "alpha": 0.5,
        "iterations": 400,
        "step_rule": "line-search",
        "gram": "client",
        "progress": False,
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [("one", 1, 0), ("two", 2, 0), *([("whole, two kills", 2, 2)] if whole else [])]
        for label, count, most in runs:
            ignore = ["lm_head", *([] if most else [LATER])]
            # Tasks of each node have loaded PyTorch when the time begins.
            with clusters.cluster(count, store=1 << 30) as nodes:
                if not most:
                    pin(nodes)
                    warm = {"ignore": ["lm_head", FIRST], "overwrite": True, **options}
                    prune_model(dense, out=folder / "first", server=Ray(cpus=1), **warm)
                started = time.monotonic()
                with clusters.killing(nodes, 1, (30, 60), most):
                    report = prune_model(
                        dense, out=folder / label, server=Ray(cpus=1), ignore=ignore, **options
                    )
                found[label] = {
                    "seconds": time.monotonic() - started,
                    "kills": nodes.kills,
                    "bits": bits(folder / label),
                    "cluster": report.cluster,
                }
                print(label, found[label]["seconds"], file=sys.stderr, flush=True)
        if whole:
            started = time.monotonic()
            prune_model(dense, out=folder / "auto", server="auto", device="cpu", **options)
            found["auto"] = {"seconds": time.monotonic() - started, "bits": bits(folder / "auto")}
    found["times_as_fast"] = found["one"]["seconds"] / found["two"]["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = ["simulated", "overhead", "lost", "memory", "kills", "speed", "model"]
    parser.add_argument("what", choices=modes)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--pause", type=float, nargs=2, default=[4, 12], help="seconds between kills")
    given = parser.parse_args()
    if given.what == "memory":
        few, many = memory(128), memory(512)
        found = {"runs": [few, many], "ratio": many["peak_bytes"] / few["peak_bytes"]}
    elif given.what == "lost":
        found = lost(given.kills)
    elif given.what == "kills":
        found = kills(given.kills, given.nodes, given.pause)
    elif given.what in ("speed", "model"):
        found = model(given.model, given.text.read_text(), given.what == "model")
    else:
        found = {"simulated": simulated, "overhead": overhead}[given.what]()
    text = json.dumps({given.what: found, "ray": ray.__version__, "cores": os.cpu_count()}, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Runs in place of `sparsefw prune-model` in tests of deploy/slurm: a task on every node of the Ray cluster that
`--server ray:ADDRESS` names. Prints what it found as JSON in the last line; with the argument `wait` it goes
on until it is stopped."""
import json
import os
import subprocess
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Connects, where the token in its environment is right.
STRANGER = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


@ray.remote(num_cpus=1)
def where():
    return ray.get_runtime_context().get_node_id()


def nodes(wanted):
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        if len(alive) >= wanted:
            return alive
        time.sleep(0.1)


def stranger(address, **environment):
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen([sys.executable, "-c", STRANGER, address], env={**others, **environment},
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    *arguments, flag, server = sys.argv[1:]
    address = server.removeprefix("ray:")
    strangers = [stranger(address, RAY_AUTH_MODE="disabled"),
                 stranger(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64),
                 stranger(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=os.environ["RAY_AUTH_TOKEN"])]
    ray.init(address=address, log_to_driver=False)
    alive = nodes(int(os.environ["SLURM_JOB_NUM_NODES"]))
    found = ray.get([where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
                     for node in alive])
    print(json.dumps({
        "arguments": arguments, "flag": flag, "cpus": [node["Resources"].get("CPU") for node in alive],
        "ran_on_each": sorted(found) == sorted(node["NodeID"] for node in alive),
        "refused": [one.wait() != 0 for one in strangers]}), flush=True)
    if "wait" in arguments:
        print("waiting", flush=True)
        time.sleep(3600)
    return 7 if "fail" in arguments else 0


if __name__ == "__main__":
    sys.exit(main())

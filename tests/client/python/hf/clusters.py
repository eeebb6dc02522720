"""Ray clusters of several raylets on this machine, whose nodes are killed and added."""

import contextlib
import os
import random
import threading

import ray
from ray.cluster_utils import Cluster

# Nodes of one core stop idle processes after a second, and a new one loads PyTorch anew.
os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "600000")
STORE = 100 << 20


class Nodes:
    """A head without cores, and nodes of one core."""

    def __init__(self, count, store):
        common = {"object_store_memory": store, "include_dashboard": False}
        self._common = common
        # Its signal handlers cannot be set in the thread that adds nodes.
        self._cluster = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args={"num_cpus": 0, **common})
        self.nodes = [self.add() for _ in range(count)]
        self.kills = 0

    @property
    def address(self):
        return self._cluster.address

    def add(self):
        return self._cluster.add_node(num_cpus=1, **self._common)

    def kill(self, index):
        """SIGKILL, and another node joins."""
        self._cluster.remove_node(self.nodes[index], allow_graceful=False)
        self.kills += 1
        self.nodes[index] = self.add()

    def shutdown(self):
        self._cluster.shutdown()


@contextlib.contextmanager
def cluster(count, connect=True, store=STORE):
    before = os.environ.get("SPARSEFW_SERVER_PROGRAM")
    if before is None:
        os.environ["SPARSEFW_SERVER_PROGRAM"] = os.path.join(os.environ["SPARSEFW_BIN_DIR"], "sparsefw-server")
    nodes = Nodes(count, store)
    try:
        if connect:
            ray.init(address=nodes.address, log_to_driver=False)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
        if before is None:
            del os.environ["SPARSEFW_SERVER_PROGRAM"]


@contextlib.contextmanager
def meanwhile(run):
    """`run(ended)` in a thread; the event `ended` is set at the end of the block."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def killing(nodes, seed, pause, most):
    """Kills nodes at seeded times, some seconds (low, high) apart, until `most` of them or the end."""
    chance = random.Random(seed)

    def run(ended):
        before = nodes.kills
        while nodes.kills - before < most and not ended.wait(chance.uniform(*pause)):
            nodes.kill(chance.randrange(len(nodes.nodes)))

    return meanwhile(run)

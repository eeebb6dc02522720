"""Ray clusters of several raylets on this machine, whose nodes are killed and added."""

import contextlib
import os
import random
import re
import shutil
import tempfile
import threading
import time
import unittest.mock
from pathlib import Path

import psutil
import ray
from ray._private import services
from ray._private.internal_api import node_stats
from ray.cluster_utils import Cluster
from support.processes import wait_until

# Nodes of one core stop idle processes after a second, and a new one loads PyTorch anew.
os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "600000")
# Each process that runs tasks loads PyTorch and transformers. Compiled modules are kept, but not in the source tree:
# compiling them takes longer than all else that a small test does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).resolve().parents[4] / "build/pycache"))
# A killed raylet is found dead after two seconds, not after fifteen; one that is only slow is given a minute.
os.environ.setdefault("RAY_health_check_initial_delay_ms", "1000")
os.environ.setdefault("RAY_health_check_period_ms", "500")
os.environ.setdefault("RAY_health_check_failure_threshold", "4")
os.environ.setdefault("RAY_health_check_timeout_ms", "60000")
# What raylets count is in their files after a second.
os.environ.setdefault("RAY_debug_dump_period_milliseconds", "1000")
STORE = 100 << 20
# Bytes of the pieces in which raylets send objects: so small that large objects can be told by them.
PIECE = 32 << 10
CHUNKS = re.compile(r"num chunks received total: (\d+)")


def ended_raylets():
    """How many of this process have ended by themselves since the last call."""
    children = [child for child in psutil.Process().children() if child.name() == "raylet"]
    ended = [child for child in children if child.status() == psutil.STATUS_ZOMBIE]
    for child in ended:
        child.wait()
    return len(ended)


@contextlib.contextmanager
def patience():
    """Ray gives a raylet 30 s to start; a busy machine needs longer. One that has ended is not waited for."""
    get_node = services.get_node

    def waits(*arguments):
        def there():
            with contextlib.suppress(RuntimeError):
                return get_node(*arguments)
            return ended_raylets() and "none"

        found = wait_until(there, "the start of a raylet")
        if found == "none":
            raise OSError("a raylet has ended")
        return found

    with unittest.mock.patch.object(services, "get_node", waits):
        yield


class Nodes:
    """A head without cores, and nodes of one core."""

    def __init__(self, count, store, piece):
        common = {"object_store_memory": store, "include_dashboard": False, "include_log_monitor": False}
        self._common = common
        config = {"object_manager_default_chunk_size": piece} if piece else {}
        head = {"num_cpus": 0, "_system_config": config, **common}
        # Its signal handlers cannot be set in the thread that adds nodes.
        with patience():
            self._cluster = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
        self._folders = []
        self.kills = 0
        try:
            self.nodes = [self.add() for _ in range(count)]
        except BaseException:  # nobody else has the head
            self.shutdown()
            raise

    @property
    def address(self):
        return self._cluster.address

    def add(self):
        # A folder for each: raylets of one folder overwrite each other's debug_state.txt. Its path is short, since
        # sockets are in it.
        self._folders.append(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        for _ in range(10):
            with patience(), contextlib.suppress(OSError):
                return self._cluster.add_node(num_cpus=1, temp_dir=self._folders[-1], **self._common)
            print("a raylet has ended at its start, which it does where its agent is slow; another one is started")
        raise AssertionError("ten raylets have ended at their start")

    def owned_bytes(self):
        """Bytes of objects that raylets keep for somebody. Copies of others, which they drop where they need the room, and
        arguments of a task whose driver was killed, which Ray 2.60 never drops, do not count.
        """
        there = [node for node in ray.nodes() if node["Alive"]]
        addresses = [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in there]
        stores = [node_stats(*address, False).store_stats for address in addresses]
        return sum(store.object_store_bytes_primary_copy for store in stores)

    def forget(self):
        """Frees all objects of this process, which becomes another driver for Ray."""
        ray.shutdown()
        ray.init(address=self.address, log_to_driver=False)
        wait_until(lambda: self.owned_bytes() == 0, "the end of this process's objects")

    def received(self):
        """Pieces of objects that each node has got from others by now."""
        now, found = time.time(), []
        for node in self.nodes:
            path = Path(node.get_logs_dir_path()) / "debug_state.txt"
            wait_until(lambda path=path: path.exists() and path.stat().st_mtime > now, "what a raylet counted")
            found.append(int(wait_until(lambda path=path: CHUNKS.search(path.read_text()), "a whole file")[1]))
        return found

    def kill(self, index):
        """SIGKILL, and another node joins."""
        self._cluster.remove_node(self.nodes[index], allow_graceful=False)
        self.kills += 1
        self.nodes[index] = self.add()

    def shutdown(self):
        self._cluster.shutdown()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(count, connect=True, store=STORE, piece=None):
    with contextlib.ExitStack() as stack:
        if "SPARSEFW_SERVER_PROGRAM" not in os.environ:
            os.environ["SPARSEFW_SERVER_PROGRAM"] = os.path.join(os.environ["SPARSEFW_BIN_DIR"], "sparsefw-server")
            stack.callback(os.environ.pop, "SPARSEFW_SERVER_PROGRAM")
        nodes = Nodes(count, store, piece)
        stack.callback(nodes.shutdown)
        stack.callback(ray.shutdown)
        if connect:
            ray.init(address=nodes.address, log_to_driver=False)
        yield nodes


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

"""The connection to a Ray cluster, and what a run may use of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from sparsefw import errors
from sparsefw.errors import invalid
from sparsefw.hf.cluster.settings import Ray

# Seconds until a head must have answered.
_PATIENCE: Final = 10.0
# Seconds until a node must have room for a worker, and between two looks.
WORKER_PATIENCE: Final = 300.0
_LOOK: Final = 1.0
# The address with which Ray starts a cluster of this machine alone.
_LOCAL: Final = "local"
# Where this process has started one. No node will join it.
_alone: Final[set[str]] = set()
# What decides which program a worker's server is.
_PROGRAM: Final = ("SPARSEFW_SERVER_PROGRAM", "SPARSEFW_CUDA_MODULE")


def load_ray() -> Any:
    """The package.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise invalid("ray is not installed: pip install 'sparsefw[ray]'") from None


def connect_cluster(settings: Ray) -> None:
    """Connects this process, unless it is connected.

    Raises:
        Unavailable (UNREACHABLE): no cluster at the address.
        InvalidArgument (CLIENT_ARGUMENT): this process has another cluster.
    """
    ray = load_ray()
    address = settings.address or os.environ.get("RAY_ADDRESS", "")
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if settings.address is not None and not _same(settings.address, there):
            raise invalid(
                f"this process is connected to the Ray cluster at {there}, not {settings.address}: call "
                "ray.shutdown() first"
            )
        return
    if address.startswith("ray://"):
        raise invalid(
            f"RAY_ADDRESS must be HOST:PORT of a cluster that this machine belongs to; got {address}"
        )
    try:
        if address == _LOCAL:
            _start_alone(ray)
            return
        if address:
            _look(address)
            ray.init(address=address, log_to_driver=False)
            return
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError:  # no cluster on this machine
            _start_alone(ray)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise errors.refuse(
            grpc.StatusCode.UNAVAILABLE,
            "UNREACHABLE",
            f"no Ray cluster at {address or 'this machine'}: {error}",
        ) from None


def _start_alone(ray: Any) -> None:
    ray.init(address=_LOCAL, log_to_driver=False)
    _alone.add(ray.get_runtime_context().gcs_address)


def _same(one: str, other: str) -> bool:
    """Whether two addresses are of the same port of the same machine; "local" is that of `_alone`."""
    if one == _LOCAL:
        return other in _alone

    def resolved(address: str) -> tuple[str, str]:
        host, _, port = address.rpartition(":")
        try:
            return socket.gethostbyname(host), port
        except OSError:
            return host, port

    (host, port), (of_other, port_of_other) = resolved(one), resolved(other)
    return port == port_of_other and (host == of_other or host.startswith("127."))


def _look(address: str) -> None:
    """Ray tries for minutes to reach a head that is not there."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE):
            pass


def environment() -> dict[str, str]:
    """Variables that workers get from this process."""
    return {name: os.environ[name] for name in _PROGRAM if name in os.environ}


def nodes() -> list[dict[str, Any]]:
    """The living nodes: NodeID, NodeManagerAddress, Resources."""
    return [node for node in load_ray().nodes() if node["Alive"]]


def cores_of_smallest(gpus: int) -> int:
    """Whole cores of a worker on the smallest node that may have workers; 0: there is none. With GPUs a
    node's cores are divided among its GPUs.
    """
    cores = []
    for node in nodes():
        cpu, gpu = (node["Resources"].get(name, 0) for name in ("CPU", "GPU"))
        if cpu >= 1 and gpu >= gpus:
            cores.append(int(max(1, cpu // (gpu // gpus))) if gpus else int(cpu))
    return min(cores, default=0)


def wait_for_cores(settings: Ray, on_wait: Callable[[str], None]) -> int:
    """Cores of a worker, once a node has room for one: a head may only coordinate, and nodes that work may be
    on their way. A task that waits for such a node tells Ray's autoscaler of it. Nothing is waited for in a
    cluster that this process has started for itself.

    Args:
        on_wait: gets what is waited for, and "" at the end.

    Raises:
        FailedPrecondition (DEVICE_UNAVAILABLE): no node has had room, in WORKER_PATIENCE where it waits.
    """
    ray = load_ray()
    cores, gpus = settings.cpus or 1, settings.gpus
    what = f"{cores} {'CPU' if cores == 1 else 'CPUs'}{' and a GPU' if gpus else ''}"
    patience = 0.0 if ray.get_runtime_context().gcs_address in _alone else WORKER_PATIENCE
    deadline = time.monotonic() + patience
    wanted: list[Any] = []
    try:
        while True:
            cpus = settings.cpus or cores_of_smallest(gpus)
            if cpus and any(slots(cpus, gpus).values()):
                return cpus
            left = deadline - time.monotonic()
            if left <= 0:
                break
            wanted = wanted or [ray.remote(num_cpus=cores, num_gpus=gpus)(nothing).remote()]
            on_wait(f"a node of the Ray cluster with {what}, at most {left:.0f} s")
            time.sleep(min(_LOOK, left))
    finally:
        if wanted:
            on_wait("")
        for ref in wanted:
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.cancel(ref, force=True)
    there, within = nodes(), f" in {patience:.0f} s" if patience else ""
    more = "start nodes (ray start --address=) or " if patience else "take a cluster with more nodes or "
    cpu, gpu = (sum(node["Resources"].get(name, 0) for node in there) for name in ("CPU", "GPU"))
    raise errors.refuse(
        grpc.StatusCode.FAILED_PRECONDITION,
        "DEVICE_UNAVAILABLE",
        f"no node of the Ray cluster has had {what} for a worker{within}: its nodes are {len(there)}, with "
        f"{cpu:.0f} CPUs and {gpu:.0f} GPUs in all; {more}change Ray(cpus=)",
    )


def nothing() -> None:
    """A task that only wants room."""


def slots(cpus: int, gpus: int) -> dict[str, int]:
    """Workers that fit, by living node."""
    found = {}
    for node in nodes():
        cpu, gpu = (node["Resources"].get(name, 0) for name in ("CPU", "GPU"))
        fit = int(cpu // cpus)
        found[str(node["NodeID"])] = min(fit, int(gpu // gpus)) if gpus else fit
    return found


def actor_size(cpus: int, gpus: int) -> dict[str, float]:
    """What an actor reserves: about half of a worker. The rest is for the tasks of calibration, which run in
    turn with jobs. Two actors cannot share a GPU.
    """
    return {"num_cpus": cpus // 2 or 0.5, "num_gpus": 0.6 * gpus}


def task_size(cpus: int, gpus: int) -> dict[str, float]:
    """What a task reserves. Ray knows no fractions above one."""
    return {"num_cpus": cpus - cpus // 2 if cpus > 1 else 0.5, "num_gpus": 0.4 * gpus}

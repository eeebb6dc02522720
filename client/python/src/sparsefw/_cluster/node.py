"""What a process knows of its node."""

from __future__ import annotations

import functools
import platform

import ray


def here() -> str:
    """The id of the node that this process runs on."""
    return str(ray.get_runtime_context().get_node_id())


@functools.cache
def processor() -> str:
    """The model of this machine's processor."""
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            named = (line.partition(":")[2] for line in lines if line.startswith("model name"))
            model = " ".join(next(named, model).split())
    except OSError:  # not Linux
        pass
    return model

"""What the figures were measured on."""
import os
import platform
import subprocess
import time
from pathlib import Path


def cores():
    return len(os.sched_getaffinity(0))


def thread_counts():
    return [1] if cores() == 1 else [1, 2]


def busy_share(seconds=1.0):
    """How much of all cores others use while this program sleeps; 0 where it is not known."""
    def idle_and_total():
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        return numbers[3] + numbers[4], sum(numbers[:8])

    try:
        idle_before, total_before = idle_and_total()
        time.sleep(seconds)
        idle_after, total_after = idle_and_total()
    except (OSError, ValueError, IndexError):
        return 0.0
    total = total_after - total_before
    return 1 - (idle_after - idle_before) / total if total else 0.0


def _from_file(path, key):
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _output(command, folder=None):
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cache_sizes():
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            sizes["L" + (index / "level").read_text().strip()] = (index / "size").read_text().strip()
    return sizes


def _compiler(build_folder):
    cache = Path(build_folder) / "CMakeCache.txt"
    if not cache.exists():
        return "unknown"
    for line in cache.read_text().splitlines():
        if line.startswith("CMAKE_CXX_COMPILER:"):
            version = _output([line.split("=", 1)[1], "--version"])
            return version.splitlines()[0] if version else "unknown"
    return "unknown"


def describe(build_folder):
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "processor": _from_file("/proc/cpuinfo", "model name"),
        "cores": cores(),
        "caches": _cache_sizes(),
        "memory": _from_file("/proc/meminfo", "MemTotal"),
        "load_average_at_start": list(os.getloadavg()),
        "busy_at_start": round(busy_share(), 3),
        "system": system.get("PRETTY_NAME", platform.platform()),
        "compiler": _compiler(build_folder),
    }


def commit(root):
    """The commit that was measured; "+changes" when the tree differs from it."""
    name = _output(["git", "rev-parse", "--short=12", "HEAD"], root)
    if name is None:
        return "unknown"
    return name + ("+changes" if _output(["git", "status", "--porcelain"], root) else "")

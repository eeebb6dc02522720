"""What the figures were measured on."""
import os
import platform
import re
import time
from pathlib import Path

from harness.places import find_tool
from harness.process import ProgramError, run


def cores():
    return len(os.sched_getaffinity(0))


def thread_counts():
    return [1] if cores() == 1 else [1, 2]


def line_of(command, folder=None):
    """The last line that a command prints; None where it fails."""
    try:
        done = run(["env", "-C", str(folder or "."), *command], 30)
    except ProgramError:
        return None
    lines = done.out.strip().splitlines()
    return lines[-1].strip() if lines else ""


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
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _cache_sizes():
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            level = (index / "level").read_text().strip()
            sizes[f"L{level}"] = (index / "size").read_text().strip()
    return sizes


def _compiler(build_folder):
    cache = Path(build_folder) / "CMakeCache.txt"
    if cache.exists():
        found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache.read_text(), re.M)
        if found:
            try:
                return run([found[1], "--version"], 30).out.splitlines()[0]
            except ProgramError:
                pass
    return "unknown"


def host():
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {"processor": _from_file("/proc/cpuinfo", "model name"), "cores": cores(),
            "memory": _from_file("/proc/meminfo", "MemTotal"), "kernel": platform.release(),
            "system": system.get("PRETTY_NAME", platform.platform()), "glibc": glibc_version()}


def describe(build_folder):
    """The host, and what a CPU's figures depend on besides."""
    return {**host(), "caches": _cache_sizes(), "load_average_at_start": list(os.getloadavg()),
            "busy_at_start": round(busy_share(), 3), "compiler": _compiler(build_folder)}


def glibc_version():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    except (AttributeError, ValueError, OSError):
        return platform.libc_ver()[1] or "0"


def glibc_too_old(wanted):
    """None, or one sentence."""
    here = glibc_version()
    numbers = [tuple(int(part) for part in version.split(".")[:2]) for version in (here, wanted)]
    if numbers[0] >= numbers[1]:
        return None
    return (f"this bundle needs glibc {wanted} or newer, and this system has {here}: build it on a "
            "system as old as this one, or run it on a newer one")


def gpu_tools():
    """The driver and where CUDA's tools are."""
    driver = line_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    nvcc = find_tool("nvcc")
    release = re.search(r"cuda_(\d+\.\d+)", line_of([nvcc, "--version"]) or "") if nvcc else None
    return {"driver": driver or "unknown", "toolkit": release[1] if release else "no nvcc",
            "compute_sanitizer": find_tool("compute-sanitizer"), "ncu": find_tool("ncu")}


def commit(root):
    """The commit that was measured; "+changes" when the tree differs from it."""
    name = line_of(["git", "rev-parse", "--short=12", "HEAD"], root)
    if name is None:
        return "unknown"
    return name + ("+changes" if line_of(["git", "status", "--porcelain"], root) else "")

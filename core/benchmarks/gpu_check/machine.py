"""What a check runs on: GPU, driver, CUDA, and where their libraries and tools are."""
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_suite.tools import cuda_folders

PROBE = Path(__file__).resolve().parent / "cuda_probe.py"


def probe():
    """What cuda_probe.py prints; {"error": ...} where it prints nothing."""
    try:
        done = subprocess.run([sys.executable, str(PROBE)], capture_output=True, text=True,
                              timeout=60, check=False)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": "the CUDA driver does not answer within 60 s"}
    except (OSError, ValueError) as error:
        return {"error": f"the CUDA driver cannot be asked: {error}"}


def _line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[-1].strip() if done.returncode == 0 and lines else None


def driver_version():
    line = _line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    if line:
        return line
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    return found[1] if found else "unknown"


def find_tool(name):
    places = [os.path.join(folder, *part, name)
              for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda",
                             *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)) if folder
              for part in (("bin",), ("compute-sanitizer",))]
    return shutil.which(name) or next((place for place in places if os.access(place, os.X_OK)),
                                      None)


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


def host():
    system = {}
    if Path("/etc/os-release").exists():
        system = platform.freedesktop_os_release()
    processor = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)),
            "system": system.get("PRETTY_NAME", platform.platform()),
            "kernel": platform.release(), "glibc": glibc_version(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def gpu(found):
    """What a probe found, and the versions around it."""
    nvcc = find_tool("nvcc")
    release = re.search(r"cuda_(\d+\.\d+)", _line([nvcc, "--version"]) or "") if nvcc else None
    return {**found, "driver": driver_version(), "toolkit": release[1] if release else "no nvcc",
            "compute_sanitizer": find_tool("compute-sanitizer"),
            "library_folders": list(cuda_folders())}


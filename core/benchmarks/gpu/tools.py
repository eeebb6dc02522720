"""Where things are: CUDA's libraries, and a Python that has PyTorch."""
import functools
import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PEERS = Path(__file__).resolve().parent.parent / "peers"


def _imports_torch(python, device):
    check = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 9)"
    if device == "cpu":
        check = "import torch"
    try:
        done = subprocess.run([str(python), "-c", check], capture_output=True, timeout=120,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode


def find_torch(device):
    """(python, None), or (None, why there is none). SPARSEFW_BENCH_PYTHON names it."""
    named = os.environ.get("SPARSEFW_BENCH_PYTHON")
    found = [named] if named else [shutil.which("python3"), sys.executable,
                                   str(ROOT / "build/bench-venv/bin/python")]
    blind = None
    for python in dict.fromkeys(path for path in found if path):
        code = _imports_torch(python, device)
        if code == 0:
            return python, None
        if code == 9:
            blind = python
    if blind:
        return None, f"the PyTorch of {blind} sees no CUDA device"
    return None, f"no PyTorch: {', '.join(dict.fromkeys(filter(None, found)))} cannot import torch"


def _package_folders():
    """Of the CUDA libraries that PyTorch's packages bring along."""
    python = os.environ.get("SPARSEFW_BENCH_PYTHON") or shutil.which("python3")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60,
                              check=True)
    except (OSError, TypeError, subprocess.SubprocessError):
        return []
    packages = done.stdout.strip()
    return [f"{packages}/nvidia/cu13/lib", f"{packages}/nvidia/cublas/lib"]


@functools.lru_cache(maxsize=None)
def cuda_folders():
    """Of the driver and of cuBLAS, as far as the loader does not look there by itself."""
    toolkit = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib"]
    places = {"libcuda.so.1": ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"],
              "libcublas.so.13": toolkit + _package_folders()}
    folders = []
    for library, patterns in places.items():
        loads = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{library}')"],
                               capture_output=True, check=False).returncode == 0
        found = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))
                 if os.path.exists(os.path.join(folder, library))]
        if not loads and found:
            folders.append(found[0])
    return tuple(folders)


def programs_environment(**more):
    """Ours for the project's programs: less what would configure them or send loopback calls to a
    proxy. CUDA's folders come last, and for these programs only: PyTorch brings its own."""
    clean = {name: value for name, value in os.environ.items()
             if (not name.startswith("SPARSEFW_") or name == "SPARSEFW_CUDA_MODULE")
             and not name.lower().endswith("_proxy")}
    paths = [path for path in (clean.get("LD_LIBRARY_PATH"), *cuda_folders()) if path]
    if paths:
        clean["LD_LIBRARY_PATH"] = ":".join(paths)
    return {**clean, **more}

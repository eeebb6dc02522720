"""Where things are: the programs, CUDA's libraries and tools, a Python with PyTorch."""
import functools
import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.process import ProgramError, run

ROOT = Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/sparsefw-gpu-check"  # unpacked
PEERS = ROOT / "core/benchmarks/peers"
VENV_PYTHON = ROOT / "build/bench-venv/bin/python"
NO_DEVICE = 9  # exit status of a Python that has PyTorch and sees no CUDA device
# What programs of the project are given of the environment: the CUDA module, the emulated device.
KEPT = ("SPARSEFW_CUDA_MODULE", "SPARSEFW_CUDA_ON_HOST_")


def is_built():
    return (ROOT / "build/bin/sparsefw-bench-device").exists()


def programs_folder():
    """The folder of a build; where nothing was built, that of an unpacked bundle."""
    return BUNDLE / "bin" if BUNDLE.exists() and not is_built() else ROOT / "build/bin"


def _imports(python, module, cuda):
    """The exit status of an import; None where the Python does not start."""
    code = f"import sys, {module}"
    if cuda:
        code += f"; sys.exit(0 if torch.cuda.is_available() else {NO_DEVICE})"
    try:
        return run([python, "-c", code], 120, check=False).code
    except ProgramError:
        return None


def _install(log):
    """PyTorch from PyPI into build/bench-venv; returns None, or why not."""
    folder, requirements = VENV_PYTHON.parents[1], PEERS / "requirements.txt"
    log(f"installing {requirements.name} into {folder} (several GB, once)")
    try:
        run([sys.executable, "-m", "venv", folder], 300)
        run([folder / "bin/pip", "--disable-pip-version-check", "-q", "install", "-r",
             requirements], 1200)
    except ProgramError as error:
        return str(error).strip().splitlines()[-1]
    return None


def find_python(module, log, install=False, cuda=False):
    """(python, None), or (None, why there is none). SPARSEFW_BENCH_PYTHON names it."""
    named = os.environ.get("SPARSEFW_BENCH_PYTHON")
    places = [named] if named else [str(VENV_PYTHON), shutil.which("python3"), sys.executable]
    places = list(dict.fromkeys(place for place in places if place))
    blind = None
    for python in places:
        code = _imports(python, module, cuda)
        if code == 0:
            return python, None
        blind = python if code == NO_DEVICE else blind
    if blind:
        return None, f"the PyTorch of {blind} sees no CUDA device"
    reason = f"no {module}: {', '.join(places)} cannot import it"
    if not install or named:
        return None, reason
    failure = _install(log)
    if failure is None and _imports(VENV_PYTHON, module, cuda) == 0:
        return str(VENV_PYTHON), None
    return None, f"{reason}; installing it failed: {failure or 'it cannot be imported'}"


def _package_folders():
    """The folders of the CUDA libraries that PyTorch's packages bring along."""
    python = os.environ.get("SPARSEFW_BENCH_PYTHON") or shutil.which("python3") or sys.executable
    try:
        done = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], 60)
    except ProgramError:
        return []
    packages = done.out.strip()
    return [f"{packages}/nvidia/{part}/lib" for part in ("cu13", "cublas", "cusolver")]


@functools.cache
def cuda_folders():
    """The folders of the driver and of cuBLAS and cuSOLVER, where the loader does not look there by
    itself."""
    toolkit = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib",
               *_package_folders()]
    places = {"libcuda.so.1": ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"],
              "libcublas.so.13": toolkit, "libcusolver.so.12": toolkit}
    folders = []
    for library, patterns in places.items():
        loads = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{library}')"],
                               capture_output=True, check=False).returncode == 0
        found = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))
                 if os.path.exists(os.path.join(folder, library))]
        if not loads and found and found[0] not in folders:
            folders.append(found[0])
    return tuple(folders)


def find_tool(name):
    """compute-sanitizer, ncu, nvcc: on the PATH or in a toolkit; None."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda",
             *sorted(glob.glob("/usr/local/cuda-*"), reverse=True),
             *sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)]
    places = [os.path.join(home, *part, name) for home in homes if home
              for part in (("bin",), ("compute-sanitizer",), ())]
    return shutil.which(name) or next(
        (place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def programs_environment(**more):
    """Ours for the project's programs: less what would configure them or send loopback calls to a
    proxy. CUDA's folders come last, and for these programs only: PyTorch brings its own."""
    clean = {name: value for name, value in os.environ.items()
             if (not name.startswith("SPARSEFW_") or name.startswith(KEPT))
             and not name.lower().endswith("_proxy")}
    paths = [path for path in (clean.get("LD_LIBRARY_PATH"), *cuda_folders()) if path]
    if paths:
        clean["LD_LIBRARY_PATH"] = ":".join(paths)
    return {**clean, **more}

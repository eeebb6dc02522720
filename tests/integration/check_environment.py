"""Names what the integration tests need and this machine lacks; run by ctest before them."""
import importlib.util
import shutil
import sys

MODULES = {"pytest": "python3-pytest", "numpy": "python3-numpy", "grpc": "python3-grpcio",
           "google.protobuf": "python3-protobuf"}
PROGRAMS = {"prometheus": "prometheus", "promtool": "prometheus", "setpriv": "util-linux"}


def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


missing = {package for module, package in MODULES.items() if not has(module)}
missing |= {package for program, package in PROGRAMS.items() if not shutil.which(program)}
if missing:
    sys.exit(f"missing Debian packages: {' '.join(sorted(missing))}; run script/bootstrap")

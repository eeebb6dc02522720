"""Where things are. Scripts and fixtures are the checkout's. Programs, tests and libraries lie in
its build folder, or, where nothing was built, in what a bundle was unpacked to."""
import json
import shutil
import tarfile
from pathlib import Path

from harness import machine, places
from harness.places import ROOT
from harness.process import ProgramError, run

NAME = "sparsefw-gpu-check"
ARCHIVE = ROOT / f"build/{NAME}.tar.xz"
MANIFEST = "bundle.json"
MODULE = "libsparsefw_cuda.so"
FIXTURE = Path("tests/fixtures/minilm")
UNPACK_SECONDS = 60


class Problem(Exception):
    """Ends the command with one sentence."""


def unpack(archive, folder):
    """The folder in `folder` that the archive holds."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(folder)  # our own
    except tarfile.ReadError:  # also of a Python without lzma
        try:
            run(["tar", "-xf", archive, "-C", folder], UNPACK_SECONDS)
        except ProgramError as error:
            raise Problem(f"{archive} cannot be unpacked: {error}") from None
    return Path(folder) / NAME


def unpack_where_nothing_was_built():
    if places.is_built() or not ARCHIVE.exists():
        return
    shutil.rmtree(places.BUNDLE, ignore_errors=True)  # that of an older one
    unpack(ARCHIVE, ARCHIVE.parent)


def home():
    """The folder with bin, tests and lib."""
    return places.programs_folder().parent


def manifest(folder=None):
    """The manifest of an unpacked bundle; None in a build."""
    path = (folder or home()) / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def gpu_tests():
    """[{name, program, arguments, seconds}]: what CTest knows by the label gpu. Programs are
    relative to home()."""
    known = manifest()
    if known:
        return known["tests"]
    try:
        listed = run(["ctest", "--test-dir", home(), "--show-only=json-v1"], 60).out
    except ProgramError as error:
        raise Problem(f"the tests of {home()} cannot be listed: {error}") from None
    tests = []
    for test in json.loads(listed)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        if "gpu" not in properties.get("LABELS", []) or "command" not in test:
            continue
        program, *arguments = test["command"]
        if not Path(program).is_relative_to(home()):
            continue  # a script with an interpreter: not one that goes along
        tests.append({"name": test["name"], "program": str(Path(program).relative_to(home())),
                      "arguments": arguments, "seconds": properties.get("TIMEOUT", 300)})
    return tests


def commit():
    known = manifest()
    return known["commit"] if known else machine.commit(ROOT)

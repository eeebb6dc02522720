"""Where things are: the same in a built checkout and in an unpacked bundle, which is a checkout
without sources and with the libraries in build/lib."""
import json
from pathlib import Path

from harness import machine
from harness.places import ROOT
from harness.process import ProgramError, run

MANIFEST = "gpu-check-bundle.json"
MODULE = "libsparsefw_cuda.so"
FIXTURE = Path("tests/fixtures/minilm")


class Problem(Exception):
    """Ends the command with one sentence."""


def manifest(root=ROOT):
    """Of an unpacked bundle; None in a checkout."""
    path = root / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def bin_folder(root=ROOT):
    return root / "build/bin"


def gpu_tests(root=ROOT):
    """[{name, program, arguments, seconds}]: what CTest knows by the label gpu."""
    known = manifest(root)
    if known:
        return known["tests"]
    try:
        listed = run(["ctest", "--test-dir", root / "build", "--show-only=json-v1"], 60).out
    except ProgramError as error:
        raise Problem(f"the tests of {root / 'build'} cannot be listed: {error}") from None
    tests = []
    for test in json.loads(listed)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        if "gpu" not in properties.get("LABELS", []) or "command" not in test:
            continue
        program, *arguments = test["command"]
        if not Path(program).is_relative_to(root):
            continue  # a script with an interpreter: not one that goes along
        tests.append({"name": test["name"], "program": str(Path(program).relative_to(root)),
                      "arguments": arguments, "seconds": properties.get("TIMEOUT", 300)})
    return tests


def commit(root=ROOT):
    known = manifest(root)
    return known["commit"] if known else machine.commit(root)

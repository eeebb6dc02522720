"""Where things are: the same in a built checkout and in an unpacked bundle, which is a checkout
without sources and with the libraries in build/lib."""
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
        listed = subprocess.run(["ctest", "--test-dir", str(root / "build"),
                                 "--show-only=json-v1"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Problem(f"the tests of {root / 'build'} cannot be listed: {error}") from None
    tests = []
    for test in json.loads(listed.stdout)["tests"]:
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
    if known:
        return known["commit"]
    try:
        name = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, check=True,
                              capture_output=True, text=True).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True,
                                 capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + ("+changes" if changed else "")


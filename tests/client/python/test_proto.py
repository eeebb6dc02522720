"""The protocol's files: buf's rules, and what clients that are out already rely on (script/check proto)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def check(tmp_path):
    if not (Path(sys.prefix) / "bin/buf").exists():
        pytest.skip("buf is not installed")
    folder = tmp_path / "proto"
    shutil.copytree(ROOT / "proto", folder)

    def run(change=None):
        if change:
            file, old, new = change
            path = folder / "sparsefw/v1" / file
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new, 1))
        return subprocess.run([ROOT / "script/check", "proto", folder], capture_output=True, text=True, check=False)

    return run


def test_lint_and_no_break(check):
    done = check()
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("change, message", [
    (("tensor.proto", "string name = 1;", "string name = 11;"), 'Previously present field "1"'),
    (("job.proto", "METHOD_WANDA = 2;", "METHOD_WANDS = 2;"), "changed name"),
    (("job.proto", "METHOD_WANDA = 2;", "METHOD_WANDA = 2;\n  ODD = 99;"), "should be prefixed"),
    (("prune_service.proto", "  rpc GetJob(GetJobRequest) returns (Job);\n", ""), "GetJob"),
])
def test_a_break_is_seen(check, change, message):
    done = check(change)
    assert done.returncode != 0 and message in done.stdout, done.stdout + done.stderr


def test_an_addition_is_none(check):
    done = check(("tensor_service.proto", "string owner = 4;\n}\n\nmessage ListTensorsResponse",
                  "string owner = 4;\n  string label = 5;\n}\n\nmessage ListTensorsResponse"))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr

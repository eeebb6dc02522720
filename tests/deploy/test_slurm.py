"""deploy/slurm/prune-model.sbatch on a Slurm of this machine alone, with two nodes."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slurm
from conftest import SOURCE_DIR
from support.processes import BIN_DIR, wait_until

HERE = Path(__file__).resolve().parent
SCRIPT = SOURCE_DIR / "deploy/slurm/prune-model.sbatch"
VENV = Path(os.environ.get("SPARSEFW_RAY_VENV", BIN_DIR.parent / "venv"))
pytestmark = [
    pytest.mark.skipif(bool(slurm.why_not()), reason=f"Slurm: {slurm.why_not()}"),
    pytest.mark.skipif(not (VENV / "bin/ray").exists(), reason=f"Ray is not installed in {VENV}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.Slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=1) as made:
        yield made


@pytest.fixture
def submit(cluster, tmp_path):
    """submit(ARGUMENT ..., nodes=) -> (number of the job, its output)"""

    def submitted(*arguments, nodes=2, command=f"python {HERE / 'ray_program.py'}"):
        out = tmp_path / f"out-{nodes}.txt"
        environment = {**cluster.environment, "SPARSEFW_VENV": str(VENV), "SPARSEFW_SPILL": str(tmp_path),
                       "SPARSEFW_OBJECT_STORE": str(100 << 20), "SPARSEFW_COMMAND": command, "HF_HUB_OFFLINE": "1",
                       "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")}
        done = subprocess.run(["sbatch", "--parsable", f"--nodes={nodes}", f"--output={out}", SCRIPT, *arguments],
                              env=environment, cwd=tmp_path, capture_output=True, text=True)
        number = done.stdout.strip()
        assert number.isdigit(), done.stderr
        return number, out

    return submitted


def end_of(cluster, number):
    """The job's exit code, once it has ended."""
    def ended():
        text = subprocess.run(["scontrol", "--oneliner", "show", "job", number], env=cluster.environment,
                              capture_output=True, text=True, check=True).stdout
        facts = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return facts["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") and facts["ExitCode"]

    return wait_until(ended, f"the end of job {number}")


def result(out):
    text = out.read_text()
    lines = [line for line in text.splitlines() if line.startswith("{")]
    assert lines, text
    return json.loads(lines[-1])


def folder_of(out):
    return re.search(r"^sparsefw: Ray on \d nodes, .* logs in (/tmp/sparsefw-\S+) ", out.read_text(), re.M)[1]


def processes(out):
    """Processes of the job's Ray: they have its folder in their arguments."""
    folder, found = folder_of(out), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in text:
            found.append(text)
    return found


@pytest.mark.parametrize(("arguments", "nodes", "code"), [(["a model", "--data", "text"], 2, "0:0"), (["fail"], 1, "7:0")])
def test_ray_has_all_nodes_and_takes_nobody_without_the_token(cluster, submit, arguments, nodes, code):
    """The job ends as the run does."""
    number, out = submit(*arguments, nodes=nodes)
    assert end_of(cluster, number) == code, out.read_text()
    assert result(out) == {"arguments": arguments, "flag": "--server", "cpus": [1.0] * nodes, "ran_on_each": True,
                           "refused": [True, True, False]}
    wait_until(lambda: not processes(out), "the end of Ray's processes")
    assert not Path(folder_of(out)).exists()


# A model and a text of the tests of sparsefw.hf.
MAKE_MODEL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import tiny
from test_programs import TEXT, tokenizer
folder = Path(sys.argv[2])
tiny.make("llama").save_pretrained(folder / "dense")
tokenizer().save_pretrained(folder / "dense")
(folder / "data.txt").write_text(TEXT)
"""


def test_a_model_gets_the_same_bits_on_one_node_and_on_two(cluster, submit, tmp_path):
    python = VENV / "bin/python"
    if subprocess.run([python, "-c", "from sparsefw.hf import Ray"], capture_output=True).returncode:
        pytest.skip(f"sparsefw[hf,ray] is not installed in {VENV} (script/python --hf)")
    subprocess.run([python, "-c", MAKE_MODEL, SOURCE_DIR / "tests/client/python/hf", tmp_path], check=True,
                   env={**os.environ, "HF_HUB_OFFLINE": "1"})
    words = ["dense", "--data", "data.txt", "--sparsity", "0.5", "--samples", "8", "--sequence-length", "32",
             "--preset", "fast", "-q"]
    weights = set()
    for nodes in (1, 2):
        number, out = submit(*words, "--state", f"state-{nodes}", "--out", f"pruned-{nodes}", nodes=nodes,
                             command="sparsefw prune-model")
        assert end_of(cluster, number) == "0:0", out.read_text()
        weights.add((tmp_path / f"pruned-{nodes}/model.safetensors").read_bytes())
    assert len(weights) == 1


def test_a_cancelled_job_leaves_no_process(cluster, submit):
    number, out = submit("wait")
    wait_until(lambda: out.exists() and "waiting" in out.read_text(), "the run")
    assert processes(out)
    subprocess.run(["scancel", number], env=cluster.environment, check=True)
    end_of(cluster, number)
    wait_until(lambda: not processes(out), "the end of Ray's processes")
    shutil.rmtree(folder_of(out), ignore_errors=True)


def test_without_slurm_its_absence_is_named(tmp_path):
    done = subprocess.run([sys.executable, HERE / "slurm.py", "true"], env={"PATH": str(tmp_path)},
                          capture_output=True, text=True)
    assert done.returncode == 77
    assert re.fullmatch(r"skipped: .*sbatch.* not installed \(Debian: slurm-wlm, munge\)\n", done.stdout), done.stdout

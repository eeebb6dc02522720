"""kill -9 of a tuning at any place: the same call goes on, and ends with the table of one that nobody disturbs."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import tiny
from sparsefw.hf import tune
from support.processes import HANG

OPTIONS = {
    "candidates": [{"method": "magnitude"}, {"method": "wanda", "refine_blocks": {"epochs": 1}}, {"iterations": 20}],
    "blocks": 2, "sparsity": 0.5, "progress": False,
}  # fmt: skip
KILLED = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import tiny, torch
from sparsefw.hf import run, state, tune, tuning
torch.set_num_threads(1)
owner, name = {"solve": (run.Run, "_solve"), "block": (state.State, "save_block"), "judge": (tuning, "_losses"),
               "end": (tuning.shutil, "rmtree")}[sys.argv[5]]
original, left = getattr(owner, name), [int(sys.argv[6])]

def dies(*arguments, **named):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **named)

setattr(owner, name, dies)
options = json.loads(sys.argv[7])
print(json.dumps(tune(sys.argv[2], data=tiny.tokens(count=12), server=sys.argv[3], state_dir=sys.argv[4],
                      **options).to_dict()))
"""


def without_seconds(table):
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in table["candidates"]]
    return {**table, "candidates": rows, "seconds": None}


def test_kills_in_the_middle_of_a_tuning(client, shared_server, folder):
    """Within a candidate, between two, while they are judged, and with the table just written."""
    tiny.make("llama", num_hidden_layers=3).save_pretrained(folder / "dense")
    expected = tune(folder / "dense", data=tiny.tokens(count=12), server=client, **OPTIONS)
    words = [Path(tiny.__file__).parent, folder / "dense", shared_server.address, folder / "state"]
    for place, calls in (("solve", 2), ("block", 3), ("judge", 1), ("end", 1), ("none", 1)):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *map(str, words), "end" if place == "none" else place,
             str(99 if place == "none" else calls), json.dumps(OPTIONS)],
            capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == (0 if place == "none" else -signal.SIGKILL), (place, done.stderr)
        blocks = len(list((folder / "state").glob("tuning/candidate-*/block-*.json")))
        assert blocks == {"solve": 1, "block": 3, "none": 0}.get(place, 6), place
    assert without_seconds(json.loads(done.stdout)) == without_seconds(expected.to_dict())
    assert not (folder / "state/tuning").exists()

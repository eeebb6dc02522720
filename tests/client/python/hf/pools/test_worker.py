"""What a worker of a Ray cluster hands to its server: the rows that PyTorch would give."""

import os
import pickle
import subprocess
import sys

import pytest
import torch
from sparsefw.hf.layout import Matrix

pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")

from sparsefw._cluster import stored as strips  # noqa: E402
from sparsefw._cluster import worker  # noqa: E402
from sparsefw._cluster.worker import Solve, weight_of  # noqa: E402
from sparsefw.hf.cluster.objects import stored  # noqa: E402
from support.processes import HANG  # noqa: E402

ROWS = (1, 4)


def job_of(expert, transposed, weight):
    return Solve("m", ROWS, expert, transposed, {"sparsity": 0.5}, (weight,), (), "key", frozenset(), 1, None, False)


def test_workers_load_no_pytorch():
    """It takes seconds and half a GB on every node. Neither a worker nor a job that comes to it needs it."""
    weight = stored(torch.ones(5, 6, dtype=torch.bfloat16))
    program = (
        "import pickle, sys; from sparsefw._cluster import worker; worker.ray.get = lambda value: value; "
        "worker.weight_of(pickle.load(sys.stdin.buffer)); print({'torch', 'transformers'} & set(sys.modules))")
    found = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(job_of(None, False, weight)), stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=HANG, check=True)
    assert found.stdout == b"set()\n"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("expert", [None, 2])
def test_rows_of_a_parameter(monkeypatch, dtype, transposed, expert):
    shape = (6, 5) if transposed else (5, 6)
    parameter = torch.randn(shape if expert is None else (3, *shape), generator=torch.Generator().manual_seed(1)).to(dtype)
    matrix = Matrix("m", "", "weight", 5, 6, transposed, expert)
    monkeypatch.setattr(worker.ray, "get", lambda value: value)
    found = weight_of(job_of(expert, transposed, stored(parameter)))
    expected = matrix.within(parameter)[slice(*ROWS)].contiguous()
    assert (found.dtype, found.shape) == (str(dtype).removeprefix("torch."), (3, 6))
    assert bytes(found.data) == expected.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("count", [1, 3])
def test_strips_are_one_matrix(monkeypatch, count):
    monkeypatch.setattr(strips.ray, "get", lambda value: value)
    matrix = torch.randn(7, 7, generator=torch.Generator().manual_seed(1))
    parts = [stored(part) for part in matrix.tensor_split(count)]
    assert torch.equal(torch.from_numpy(strips.joined(parts)), matrix)

"""What a worker of a Ray cluster hands to its server: the rows that PyTorch would give."""

import pytest
import torch
from sparsefw.hf.layout import Matrix

pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")

from sparsefw import arrays  # noqa: E402
from sparsefw._cluster import stored as strips  # noqa: E402
from sparsefw._cluster.worker import Solve  # noqa: E402
from sparsefw.hf.cluster.objects import stored  # noqa: E402

ROWS = (1, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("expert", [None, 2])
def test_rows_of_a_parameter(dtype, transposed, expert):
    shape = (6, 5) if transposed else (5, 6)
    parameter = torch.randn(shape if expert is None else (3, *shape), generator=torch.Generator().manual_seed(1)).to(dtype)
    matrix = Matrix("m", "", "weight", 5, 6, transposed, expert)
    job = Solve("m", ROWS, expert, transposed, {}, (None,), (), "key", frozenset(), 1, None, False)
    value = stored(parameter)
    found = arrays.buffer_of(job.within(strips.array_of(value)), value.dtype)
    expected = matrix.within(parameter)[slice(*ROWS)].contiguous()
    assert (found.dtype, found.shape) == (str(dtype).removeprefix("torch."), (3, 6))
    assert bytes(found.data) == expected.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("count", [1, 3])
def test_strips_are_one_matrix(monkeypatch, count):
    monkeypatch.setattr(strips.ray, "get", lambda value: value)
    matrix = torch.randn(7, 7, generator=torch.Generator().manual_seed(1))
    parts = [stored(part) for part in matrix.tensor_split(count)]
    assert torch.equal(torch.from_numpy(strips.joined(parts)), matrix)

"""What the server refuses reaches the caller with code, reason and metadata, at once."""
import numpy as np
import pytest

from conftest import Tensor
from test_jobs import ENDLESS


@pytest.fixture
def names(client, layer, folder):
    nan = layer.gram.array.copy()
    nan[3, 5] = np.nan
    wide = Tensor(folder / "wide.f32", np.ones((40, 40)), "gram")
    return {"weight": client.upload(layer.weight), "gram": client.upload(layer.gram),
            "wide": client.upload(wide), "nan": client.upload(Tensor(folder / "nan.f32", nan, "gram"))}


@pytest.mark.parametrize("op, arguments, code, reason, metadata", [
    ("get_tensor", {"name": "tensors/none"}, "NOT_FOUND", "TENSOR_NOT_FOUND", {}),
    ("read", {"name": "tensors/none", "file": "/dev/null"}, "NOT_FOUND", "TENSOR_NOT_FOUND", {}),
    ("delete_tensor", {"name": "tensors/none"}, "NOT_FOUND", "TENSOR_NOT_FOUND", {}),
    ("get_job", {"name": "jobs/none"}, "NOT_FOUND", "JOB_NOT_FOUND", {}),
    ("watch", {"name": "jobs/none"}, "NOT_FOUND", "JOB_NOT_FOUND", {}),
    ("delete_job", {"name": "jobs/none"}, "NOT_FOUND", "JOB_NOT_FOUND", {}),
    ("create_job", {"weight": "tensors/none"}, "FAILED_PRECONDITION", "TENSOR_NOT_FOUND",
     {"field": "weight"}),
    ("create_job", {"gram": "wide"}, "INVALID_ARGUMENT", "SHAPE_MISMATCH", {"field": "gram"}),
    ("create_job", {"gram": "nan"}, "INVALID_ARGUMENT", "NON_FINITE", {"field": "gram"}),
    ("create_job", {"gram": "weight"}, "INVALID_ARGUMENT", "WRONG_TENSOR_KIND", {"field": "gram"}),
    ("create_job", {"sparsity": 2.0}, "INVALID_ARGUMENT", "PATTERN_INVALID", {}),
    ("create_job", {"iterations": -1}, "INVALID_ARGUMENT", "OPTION_INVALID", {}),
    ("create_job", {"request_id": "x" * 200}, "INVALID_ARGUMENT", "REQUEST_ID_INVALID", {}),
])
def test_a_refusal_says_why_and_is_not_tried_again(client, names, op, arguments, code, reason, metadata):
    arguments = {key: names.get(value, value) if isinstance(value, str) else value
                 for key, value in arguments.items()}
    if op == "create_job":
        arguments = {"weight": names["weight"], "gram": names["gram"], **arguments}
    error = client.refuses(op, **arguments)
    assert error.kind == (code, reason), error
    assert metadata.items() <= error.metadata.items(), error.metadata
    assert error.message and client.retries == []


def test_what_is_in_use_stays(client, layer, names):
    job = client.call("create_job", weight=names["weight"], gram=names["gram"], **ENDLESS)["name"]
    assert client.refuses("delete_tensor", name=names["gram"]).kind == ("FAILED_PRECONDITION",
                                                                        "TENSOR_IN_USE")
    assert client.refuses("delete_job", name=job).kind == ("FAILED_PRECONDITION", "JOB_NOT_FINISHED")
    client.call("cancel_job", name=job)
    mask = client.call("watch", name=job)["mask"]
    client.call("delete_tensor", name=names["gram"])
    client.call("delete_job", name=job)
    for name in (names["gram"], mask):
        assert not name or client.refuses("get_tensor", name=name).code == "NOT_FOUND"


def test_another_body_under_the_same_name(client, layer, big, folder):
    client.upload(layer.weight, request_id=f"{folder}/w")
    error = client.refuses("upload", **big.weight.upload, request_id=f"{folder}/w")
    assert error.kind == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED") and client.retries == []


def test_too_large_for_the_server(driver, start_server, big):
    server = start_server("--max-tensor-bytes", "1MiB", "--host-memory", "64MiB")
    client = driver.connect(server.address)
    error = client.refuses("upload", **big.weight.upload)
    assert error.kind == ("RESOURCE_EXHAUSTED", "TENSOR_TOO_LARGE") and error.retry_delay is None
    assert client.retries == []
    client.close()

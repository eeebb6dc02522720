"""What only this package has of the answers of a server that lies; the rest is in tests/conformance."""

import numpy as np
import pytest
from sparsefw._text import printable

import sparsefw
from support.hostile import ESCAPES, Hostile

SHOWN = r"\x1b]0;owned\x07\x1b[2J\nsparsefw-cli: all is well\u202e\x7f\u009b31m"


@pytest.fixture
def hostile():
    server = Hostile(rows=4, cols=8)
    yield server
    server.close()


def prune(hostile):
    with sparsefw.connect(hostile.address) as client:
        return client.prune(np.ones((4, 8), "f4"), np.eye(8, dtype="f4"), sparsity=0.5)


def test_a_result_must_be_of_the_layer(hostile):
    assert prune(hostile).mask.all()

    def describe(tensor):
        tensor.spec.dims[:] = (400, 800)
        tensor.byte_size = 40000

    hostile.describe = describe
    with pytest.raises(sparsefw.Internal, match=r"must be mask \[4, 8\] of bool; .* mask \[400, 800\]") as error:
        prune(hostile)
    assert error.value.reason == "PROTOCOL"
    for shape in ((400, 800), ()):
        hostile.change = lambda job, shape=shape: job.shape.__setitem__(slice(None), shape)
        with pytest.raises(sparsefw.Internal, match=r"the layer's shape \[4, 8\]") as error:
            prune(hostile)
        assert error.value.reason == "PROTOCOL"


def test_the_end_of_a_job_is_of_the_same_layer(hostile):
    def change(job):
        if job.HasField("result"):
            job.shape[:] = (400, 800)

    hostile.change = change
    with pytest.raises(sparsefw.Internal, match="the layer's shape"):
        prune(hostile)


def test_a_sweep_has_no_more_points_than_a_job_may(hostile):
    """Every point's mask is fetched and kept."""
    def change(job):
        for _ in range(points):
            job.result.sweep.add().point.alpha = 0.5
        job.result.best_point = best

    hostile.change = change
    for points, best in ((257, 0), (2, 2), (1, 7000000)):
        with sparsefw.connect(hostile.address) as client:
            with pytest.raises(sparsefw.Internal, match=rf"points, the best among them; got {points} and point {best}") as error:
                client.sweep(np.ones((4, 8), "f4"), np.eye(8, dtype="f4"), sparsity=0.5, alpha=[0.5, 0.9])
        assert error.value.reason == "PROTOCOL"


def test_activations_that_are_never_committed_are_not_sent_for_ever(hostile):
    options = sparsefw.Options(chunk_bytes=64, gram_window_bytes=64)
    with sparsefw.connect(hostile.address, options=options) as client:
        with pytest.raises(sparsefw.Internal, match="a stream ended well and nothing of it was committed") as error:
            client.gram([np.ones((2, 8), "f4")] * 8)
    assert error.value.reason == "PROTOCOL"
    assert hostile.streams == 1


def test_text_of_a_server_cannot_steer_a_terminal(hostile, capsys):
    hostile.refusal = ESCAPES
    with sparsefw.connect(hostile.address) as client:
        with pytest.raises(sparsefw.InvalidArgument) as error:
            client.jobs()
        assert error.value.message == SHOWN and str(error.value).startswith(SHOWN)
        hostile.refusal = None
        hostile.change = lambda job: setattr(job, "name", "jobs/" + ESCAPES)
        job = client.job("jobs/x")
        assert repr(job) == f"<jobs/{SHOWN} SUCCEEDED>"
        job.message.state = 2
        job.wait(progress=True)
    assert "owned" in (shown := capsys.readouterr().err) and "\x1b]" not in shown and "\x1b[2J" not in shown
    local = sparsefw.Error("a\nb", job="jobs/\x1b")
    assert str(local) == r"jobs/\x1b: a\nb (UNKNOWN)" and local.message == "a\nb"


def test_printable():
    for text in ("", "jobs/1", "a \\n b", "\u00fc\u4e2d\U0001f642"):
        assert printable(text) == text
    assert printable("\x00\t\r\n\x7f\x9b\u061c\u2028\u2069") == r"\x00\t\r\n\x7f\u009b\u061c\u2028\u2069"
    assert printable(b"m\xff".decode(errors="surrogateescape")) == r"m\xff"
    everything = "".join(map(chr, range(0x3000)))
    assert printable(printable(everything)) == printable(everything)

"""A server that lies to sparsefw-cli: about sizes, about the end of things, and to the terminal behind it."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from sparsefw.v1 import job_pb2, prune_service_pb2

from support.hostile import ESCAPES, Hostile
from support.processes import HANG, Cli, clean_environment, finish, wait_until
from support.terminal import run_on_terminal

# What may steer a terminal: C0 but for the ends of lines, DEL, C1, marks of direction.
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# An address space in which nothing large can be allocated by mistake; sanitizers need more.
LIMITED = () if os.environ.get("SPARSEFW_SANITIZER") else ("prlimit", "--as=%d" % (4 << 30))


@pytest.fixture
def hostile():
    server = Hostile()
    yield server
    server.close()


def cli_of(hostile):
    return Cli(hostile.address, prefix=LIMITED)


def test_the_server_of_these_tests_can_be_honest(hostile, layer):
    cli_of(hostile).run(*layer.submit()).expect(0)
    assert layer.mask().all()


@pytest.mark.parametrize("size", [2**62, -5, 200 << 30, 0, 1])
def test_sizes_are_not_believed(hostile, layer, size):
    hostile.describe = lambda tensor: setattr(tensor, "byte_size", size)
    cli_of(hostile).run(*layer.submit("--json", "--retry-for", "1s")) \
        .refused(3, "tensors/mask", "byte_size", str(size))
    assert not layer.mask_file.exists()
    assert "tensors/input" in hostile.deleted, "the inputs are not left behind"


@pytest.mark.parametrize("shape", [(2**20, 2**20), (23, 32), (32, 24)])
def test_another_tensor_than_the_layers_is_refused(hostile, layer, shape):
    """Consistent in itself, of 128 GiB or of the wrong shape."""
    def describe(tensor):
        tensor.spec.dims[:] = shape
        tensor.byte_size = shape[0] * shape[1] // 8
    hostile.describe = describe
    cli_of(hostile).run(*layer.submit()).refused(3, "[24, 32]", "[%d, %d]" % shape)
    # The job of another shape likewise.
    hostile.change = lambda job: job.shape.__setitem__(slice(None), shape)
    cli_of(hostile).run(*layer.submit()).refused(3, "jobs/", "[24, 32]", "[%d, %d]" % shape)


def test_what_a_fetch_cannot_know_costs_no_more_than_what_comes(hostile, layer):
    def describe(tensor):
        tensor.spec.dims[:] = (2**20, 2**20)
        tensor.byte_size = 2**37
    hostile.describe = describe
    hostile.change = lambda job: job.shape.__setitem__(slice(None), (2**20, 2**20))
    cli_of(hostile).run("fetch", "jobs/x", "--out", layer.mask_file, "--retry-for", "1s") \
        .refused(3, "the stream ended at byte 96 of 137438953472")


def test_chunks_of_no_bytes_are_no_progress(hostile, layer):
    def chunks(request):
        while True:
            yield b"", request.offset
    hostile.chunks = chunks
    cli_of(hostile).run(*layer.submit("--retry-for", "1s")).refused(3, "got 0 bytes")


@pytest.mark.parametrize("page, words", [
    (lambda number: (1, "again"), ["the token of the page before"]),
    (lambda number: (0, str(number)), ["1000 pages in a row are empty"]),
])
def test_lists_have_an_end(hostile, page, words):
    hostile.page = page
    cli_of(hostile).run("list", "--retry-for", "1s").refused(3, *words)


def test_a_list_may_have_empty_pages(hostile):
    hostile.page = lambda number: (number % 50 == 49, str(number) if number < 199 else "")
    assert len(cli_of(hostile).run("list").expect(0).out.splitlines()) == 5  # with the header


def lie(job):
    """Text wherever a job has some."""
    job.name, job.owner = "jobs/" + ESCAPES, ESCAPES
    job.spec.labels[ESCAPES] = ESCAPES
    if job.HasField("result"):
        job.result.device = ESCAPES
        job.spec.sweep.points.add(alpha=0.5)
        outcome = job.result.sweep.add()
        outcome.error.code, outcome.error.message = 3, ESCAPES


def fail(job):
    lie(job)
    if job.state == job_pb2.JOB_STATE_SUCCEEDED:
        job.state = job_pb2.JOB_STATE_FAILED
        job.ClearField("result")
        job.error.code, job.error.message = 3, ESCAPES


COMMANDS = [["status", "jobs/x"], ["watch", "jobs/x"], ["list"], ["cancel", "jobs/x"], ["info"],
            ["delete", "jobs/x\x1b[31m\n\u202e"]]


@pytest.mark.parametrize("change", [lie, fail])
def test_text_of_a_server_cannot_steer_a_terminal(hostile, layer, change):
    hostile.change = change
    hostile.info = prune_service_pb2.ServerInfo(
        version=ESCAPES, devices=[prune_service_pb2.Device(name=ESCAPES, description=ESCAPES)],
        default_device=ESCAPES, default_device_reason=ESCAPES, patterns=[ESCAPES],
        settings=[prune_service_pb2.Setting(name=ESCAPES, value=ESCAPES)])
    fetch = ["fetch", "jobs/x", "--out", str(layer.mask_file), "--overwrite"]
    seen = 0
    for command in [*COMMANDS, layer.submit(), layer.submit("--detach", out=False), fetch]:
        for json_flag in ([], ["--json"]):
            done = cli_of(hostile).run(*command, *json_flag)
            assert done.code in (0, 4), done.err
            for text in (done.out, done.err):
                assert not STEERS.search(text), (command, text)
                assert "\nsparsefw-cli: all is well" not in text, "a line of one's own"
                seen += "owned" in text
            if json_flag and done.out:
                json.loads(done.out)
    assert seen > 15, "it was shown, escaped"


def test_messages_of_errors_cannot_steer_a_terminal(hostile, layer):
    hostile.refusal = ESCAPES
    for command in [*COMMANDS[:4], COMMANDS[5], layer.submit()]:
        done = cli_of(hostile).run(*command).refused(3, r"\x1b]0;owned\x07\x1b[2J\nsparsefw-cli: all is well\u202e")
        assert not STEERS.search(done.err)


def test_progress_cannot_steer_a_terminal(hostile, layer):
    """The program itself moves the cursor, clears and colours; nothing else arrives."""
    hostile.change = lie
    done, text = run_on_terminal(cli_of(hostile).arguments(*layer.submit()))
    done.expect(0)
    assert "owned" in text and "\x1b]" not in text and "\x1b[2J" not in text
    assert not STEERS.search(re.sub("\x1b\\[(K|0m|32m)|\r", "", text))


@pytest.mark.parametrize("answered", [True, False])
def test_an_interrupt_while_an_upload_is_made_leaves_none(hostile, layer, answered):
    """The client knows the upload by the answer, or else by its own request id."""
    made, interrupted, left = threading.Event(), threading.Event(), threading.Event()

    def on_upload(context):
        context.add_callback(left.set)
        made.set()
        interrupted.wait(HANG)
        # The answer comes once the client has been told; how soon it notices is its own affair.
        left.wait(0.2 if answered else HANG)  # not a limit

    hostile.on_upload = on_upload
    process = cli_of(hostile).start(*layer.submit())
    assert made.wait(HANG)
    process.send_signal(signal.SIGINT)
    interrupted.set()
    finish(process).refused(5, "cancelled before the job was submitted")
    assert hostile.deleted == ["uploads/1"]


@pytest.mark.parametrize("answers", ["nothing", "connections"])
def test_an_interrupt_while_it_connects_ends_the_wait(layer, answers):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        if answers == "nothing":
            silent.close()
        gram = ["gram", "--activations", layer.activations_file, "--out", layer.folder / "g"]
        for command in (layer.submit(), gram):
            process = Cli(address).start(*command, "--timeout", "10m")
            wait_until(lambda: signals_of(process.pid) & 1 << signal.SIGINT - 1, "it handles the signal")
            process.send_signal(signal.SIGINT)
            finish(process).refused(5, "cancelled before")


def signals_of(pid):
    """Those that the process blocks, to read them."""
    return int(re.search(r"^SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1], 16)


def test_a_reader_of_the_messages_that_is_gone_leaves_no_inputs(hostile, layer):
    """As in `2>&1 >FILE | head -1`."""
    for command in (layer.submit("--keep-tensors"), layer.submit()):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(cli_of(hostile).arguments(*command), stdout=subprocess.DEVNULL, stderr=writer,
                              env=clean_environment(), timeout=HANG)
        os.close(writer)
        assert done.returncode == 0 and layer.mask().all()
    assert hostile.deleted == ["tensors/input"] * 2


def test_a_failed_job_may_have_a_mask(hostile, layer, tmp_path):
    """The disk had room for the mask, and none for the weights."""
    def change(job):
        if job.HasField("result"):
            job.state = job_pb2.JOB_STATE_FAILED
            job.spec.return_pruned_weight = True
            job.error.code, job.error.message = 8, "no room for the weights"

    hostile.change = change
    weights = tmp_path / "weights"
    for command in (layer.submit("--out-weights", weights),
                    ["fetch", "jobs/x", "--out", layer.mask_file, "--out-weights", weights]):
        layer.mask_file.unlink(missing_ok=True)
        done = cli_of(hostile).run(*command).expect(4)
        assert "no room for the weights" in done.err and str(layer.mask_file) in done.out
        assert layer.mask().all() and not weights.exists()


def test_inputs_are_deleted_where_the_output_cannot_be_written(hostile, layer):
    folder = layer.folder / "gone"
    folder.mkdir()

    def change(job):
        if job.HasField("result") and folder.exists():
            folder.rmdir()

    hostile.change = change
    cli_of(hostile).run(*layer.submit("--out", folder / "mask")).refused(2, "fetch jobs/")
    assert hostile.deleted == ["tensors/input"] * 2


def test_names_of_files_cannot_steer_a_terminal(cli, layer):
    strange = layer.folder / "m\n\x1b[31m\u202e\x7f.safetensors"
    done = cli.run(*layer.submit("--method", "wanda", "--out", strange)).expect(0)
    assert strange.exists() and not STEERS.search(done.out + done.err)
    assert r"m\n\x1b[31m\u202e\x7f.safetensors" in done.out
    done = cli.run(*layer.submit("--weights", str(strange) + "none")).refused(2, r"\x1b[31m")
    assert not STEERS.search(done.err)
    done = cli.run("gram", "--activations", layer.activations_file, "--out", strange, "--overwrite", "--json").expect(0)
    assert done.json()["gram"] == str(strange) and not STEERS.search(done.out + done.err)


def test_a_name_that_is_no_text_is_still_json(cli, layer):
    path = bytes(layer.folder) + b"/\xff\xfe.safetensors"
    done = cli.run("gram", "--activations", layer.activations_file, "--out", path.decode(errors="surrogateescape"),
                   "--json").expect(0)
    assert done.json()["gram"].endswith("/\ufffd\ufffd.safetensors")

"""SIGTERM and SIGINT: the server drains, whatever is under way, and exits with 0."""
import signal
import threading
import time

import grpc
import numpy as np
import pytest

from support.layers import ENDLESS
from support.processes import BIN_DIR, HANG, Cli, finish, wait_until
from support.rpc import Client, chunks, error_info, prune_service_pb2, tensor_pb2


def detach(cli, layer, *flags):
    return cli.run(*layer.submit(*ENDLESS, "--detach", "--json", *flags, out=False)) \
        .expect(0).json()["job"]


def state(cli, job):
    return cli.run("status", job, "--json").expect(0).json()["state"]


def running(cli, job):
    wait_until(lambda: state(cli, job) == "RUNNING", "job runs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_drains_at_once(start_server, number):
    server = start_server("--drain-grace", "1h", "--fetch-grace", "1h")
    server.signal(number)
    assert server.wait() == 0
    assert len(server.output) == 1


def test_it_waits_for_the_deletion_of_expired_tensors(start_server, folder):
    """Meanwhile no other timer works on what is gone: freed memory is overwritten here."""
    seen = folder / "seen"
    server = start_server(
        "--gc-interval", "100ms", "--tensor-ttl", "1s", program=BIN_DIR.parent / "tests/sparsefw-server-failpoints",
        env={"SPARSEFW_FAILPOINTS": "tensor.delete=sleep:4000@1", "SPARSEFW_FAILPOINTS_SEEN": str(seen), "MALLOC_PERTURB_": "165",
             "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"})
    client = Client(server.address)
    client.upload(np.ones((4, 4), np.float32), "weight")
    client.close()
    wait_until(lambda: "tensor.delete\n" in seen.read_text(), "a tensor is deleted")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()[-3000:]


def test_running_job_keeps_its_best_mask_and_watchers_are_told(start_server, big_layer):
    server = start_server("--drain-grace", "2s", "--workers", "1", "--store", "memory")
    cli = Cli(server.address)
    attached = cli.start(*big_layer.submit(*ENDLESS, "--json"))
    (entry,) = wait_until(lambda: cli.run("list", "--json").json()["jobs"], "job is accepted")
    # With a report it has a mask, however slow the machine is in the seconds that the drain gives it.
    wait_until(lambda: cli.run("status", entry["job"], "--json").expect(0).json()["progress"], "job has a mask")
    queued = detach(cli, big_layer)
    client = Client(server.address)
    events, error = [], []

    def watch():
        try:
            for event in client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=queued)):
                events.append(event)
        except grpc.RpcError as raised:
            error.append(raised)

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_until(lambda: events, "snapshot")
    server.signal(signal.SIGTERM)
    done = finish(attached)
    assert server.wait() == 0, server.log()
    watcher.join(HANG)
    assert not watcher.is_alive()
    assert events[-1].job.state == 5 or error, "the queued job is cancelled, or the watch UNAVAILABLE"
    result = done.expect(0).json()
    assert (result["state"], result["stop_reason"]) == ("CANCELLED", "CANCELLED")
    assert big_layer.mask().sum() == result["kept"], "fetched while the server drained"
    client.close()


def test_draining_server_refuses_new_work_and_says_when_to_come_back(start_server, big_layer):
    server = start_server("--drain-grace", "1h")
    cli = Cli(server.address)
    job = detach(cli, big_layer)
    running(cli, job)
    client = Client(server.address)
    client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest())
    weight, gram = (client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job)).spec.weight,
                    client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job)).spec.gram)
    server.signal(signal.SIGTERM)
    spec = client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job)).spec
    request = prune_service_pb2.CreateJobRequest(spec=spec)

    def refused():
        try:
            client.jobs.CreateJob(request, timeout=HANG)
        except grpc.RpcError as error:
            return error
        return None

    error = wait_until(refused, "new jobs are refused")
    code, reason, metadata = error_info(error)
    assert code == grpc.StatusCode.UNAVAILABLE and reason == "DRAINING"
    assert int(metadata["retry_delay_ms"]) > 0
    assert (spec.weight, spec.gram) == (weight, gram)
    # Existing things can still be read, and cancelling ends the drain early.
    assert client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest()).draining
    client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=job))
    assert server.wait() == 0
    client.close()


def test_second_signal_ends_at_once(start_server, big_layer):
    server = start_server("--drain-grace", "1h")
    cli = Cli(server.address)
    running(cli, detach(cli, big_layer))
    server.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in server.log(), "drain begins")
    time.sleep(0.2)  # it must have gone from one wait to the other; no event tells
    assert server.process.poll() is None, "still waiting for its job"
    server.signal(signal.SIGTERM)
    assert server.wait() == 1


def test_half_written_uploads_and_idle_watches_do_not_hold_it(start_server, layer):
    server = start_server("--drain-grace", "1s")
    client = Client(server.address)
    upload = client.create_upload(layer.weight, "weight")
    gate = threading.Event()

    def half():
        yield next(chunks(upload.name, layer.weight.tobytes(), chunk=512, finish=False))
        gate.wait(HANG)  # the client neither goes on nor ends its stream

    call = client.tensors.WriteTensor.future(half())
    wait_until(lambda: server.process.poll() is None, "server is there")
    other = Client(server.address)
    from sparsefw.v1 import tensor_service_pb2
    wait_until(lambda: other.tensors.GetUpload(
        tensor_service_pb2.GetUploadRequest(name=upload.name)).committed_size == 512, "written")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()
    gate.set()
    assert call.exception(HANG) is not None
    assert upload.spec.kind == tensor_pb2.TENSOR_KIND_WEIGHT
    client.close()
    other.close()

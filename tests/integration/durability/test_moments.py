"""Drains and kills at moments that are over too soon to be met by chance."""
import signal
import threading

import pytest
from support.processes import BIN_DIR, HANG, Cli, wait_until
from support.rpc import (Client, job_pb2, prune_service_pb2, prune_stream, refusal, tensor_pb2,
                         tensor_service_pb2)

FAILPOINTS = BIN_DIR.parent / "tests/sparsefw-server-failpoints"


@pytest.mark.parametrize("request_id", ["again", ""])
def test_a_drain_that_comes_while_the_job_of_a_stream_is_accepted_keeps_it(start_server, layer, request_id):
    """If a request id leads back to it: else it would run for nobody."""
    server = start_server(program=FAILPOINTS, env={"SPARSEFW_FAILPOINTS": "job.accepted=sleep:2000"})
    client = Client(server.address)
    stream = threading.Thread(target=lambda: refusal(
        lambda: prune_stream(client, layer, detach=False, request_id=request_id)))
    stream.start()
    jobs = lambda: client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(), timeout=HANG).jobs
    wait_until(lambda: len(jobs()) == 1, "it is stored")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()
    stream.join()
    client.close()
    again = start_server("--state-dir", server.state_dir)
    client = Client(again.address)
    wait_until(lambda: jobs()[0].state != job_pb2.JOB_STATE_QUEUED, "it goes on")
    if not request_id:
        assert jobs()[0].state == job_pb2.JOB_STATE_CANCELLED
        client.close()
        return
    assert jobs()[0].state == job_pb2.JOB_STATE_RUNNING
    client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=jobs()[0].name), timeout=HANG)
    client.close()


def test_a_kill_in_the_middle_of_a_deletion_leaves_no_results(start_server, layer):
    server = start_server(program=FAILPOINTS, env={"SPARSEFW_FAILPOINTS": "job.deleted=kill@1"})
    cli = Cli(server.address)
    jobs = [cli.run(*layer.submit("--json")).expect(0).json()["job"] for _ in range(2)]
    cli.run("delete", jobs[0], "--retry-for", "1s")
    assert server.wait() == -signal.SIGKILL
    again = start_server("--state-dir", server.state_dir)
    client = Client(again.address)
    left = client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=jobs[1]), timeout=HANG)
    masks = tensor_service_pb2.ListTensorsRequest(kinds=[tensor_pb2.TENSOR_KIND_MASK])
    tensors = client.tensors.ListTensors(masks, timeout=HANG).tensors
    assert [tensor.name for tensor in tensors] == [left.result.mask]
    client.close()

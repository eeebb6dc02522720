"""The server's log: how the lines of a call, of the job that it submitted and of a restart are found,
and that nothing a client sends makes lines of its own."""
import json
import re
import signal

import grpc
import pytest

from support.processes import HANG, Cli, wait_until
from support.rpc import Client, job_pb2, prune_service_pb2, tensor_service_pb2

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
LONG = ("--method", "sparsefw", "--iterations", "1000000000", "--report-every", "500")


def json_lines(server):
    return [json.loads(line) for line in server.log().splitlines()]


def events(server, name, **fields):
    return [line for line in json_lines(server) if line["event"] == name
            and all(line.get(key) == value for key, value in fields.items())]


def wanda(layer_client, layer):
    return job_pb2.JobSpec(
        weight=layer_client.upload(layer.weight, "weight"),
        gram=layer_client.upload(layer.gram, "gram"), method=job_pb2.METHOD_WANDA,
        pattern=job_pb2.Pattern(per_row=job_pb2.Pattern.PerRow(sparsity=0.5)))


def test_the_lines_of_a_job_lead_to_its_call_also_after_a_restart(start_server, layer):
    first = start_server("--log-format", "json", "--log-level", "debug")
    client = Client(first.address)
    job = client.jobs.CreateJob(
        prune_service_pb2.CreateJobRequest(spec=wanda(client, layer), request_id="my request"),
        metadata=[("traceparent", TRACEPARENT)], timeout=HANG)
    for event in client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=job.name), timeout=HANG):
        pass
    cli = Cli(first.address)
    slow = cli.run(*layer.submit("--detach", "--json", *LONG, out=False),
                   env={"TRACEPARENT": TRACEPARENT}).expect(0).json()["job"]
    wait_until(lambda: events(first, "job_started", job=slow), "the job runs")
    client.close()
    first.signal(signal.SIGKILL)
    first.wait()

    of_call = {"tenant": "default", "request_id": "my request", "traceparent": TRACEPARENT}
    [call] = events(first, "rpc", method="PruneService/CreateJob", request_id="my request")
    assert call["job"] == job.name and call["traceparent"] == TRACEPARENT and call["code"] == "OK"
    for name in ("job_accepted", "job_started", "job_ended"):
        [line] = events(first, name, job=job.name)
        assert of_call.items() <= line.items(), line
    watches = events(first, "rpc", method="PruneService/WatchJob", job=job.name)
    assert len(watches) == 1 and "traceparent" not in watches[0]
    # The command line sends the trace of its environment with every call.
    uploads = events(first, "rpc", method="TensorService/WriteTensor", traceparent=TRACEPARENT)
    assert len(uploads) == 2 and all(one["upload"].startswith("uploads/") for one in uploads)
    assert events(first, "job_accepted", job=slow, traceparent=TRACEPARENT)

    second = start_server("--log-format", "json", "--log-level", "debug", "--state-dir",
                          first.state_dir)
    [recovered] = events(second, "job_recovered", job=slow)
    assert recovered["traceparent"] == TRACEPARENT and recovered["request_id"]
    wait_until(lambda: events(second, "job_started", job=slow), "the job runs again")
    [started] = events(second, "job_started", job=slow)
    assert started["traceparent"] == TRACEPARENT and started["attempt"] == 2
    cli = Cli(second.address)
    assert cli.run("status", slow, "--json").expect(0).json()["attempts"] == 2
    assert "attempts     2; the server ended" in cli.run("status", slow).expect(0).out
    assert ", attempt 2" in cli.run("list", "--state", "RUNNING").expect(0).out
    cli.run("cancel", slow).expect(0)
    watched = cli.run("watch", slow, "--json")
    assert watched.json()["attempts"] == 2 and ", attempt 2" in watched.err
    assert events(second, "job_ended", job=slow, traceparent=TRACEPARENT)
    assert second.stop() == 0


HOSTILE = "x\njob_ended job=jobs/1\r\n\u2028{\"event\":\"forged\"}\x1b[2K\u0085"


@pytest.mark.parametrize("form", ["text", "json"])
def test_clients_write_no_lines_of_their_own(start_server, form):
    server = start_server("--log-format", form, "--log-level", "debug")
    client = Client(server.address)
    before = len(server.log().splitlines())
    calls = [
        lambda **more: client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=HOSTILE), **more),
        lambda **more: client.tensors.GetTensor(
            tensor_service_pb2.GetTensorRequest(name="tensors/" + HOSTILE), **more),
        lambda **more: client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(
            request_id=HOSTILE, owner=HOSTILE), **more),
        lambda **more: client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(
            request_id="r" * 100_000), **more),
        lambda **more: list(client.jobs.WatchJob(
            prune_service_pb2.WatchJobRequest(name="jobs/" + HOSTILE), **more))]
    for call in calls:
        for trace in (TRACEPARENT, TRACEPARENT.upper(), TRACEPARENT + " job=jobs/1",
                      "00-" + "0" * 32 + TRACEPARENT[35:], "\"}"):
            with pytest.raises(grpc.RpcError):
                call(metadata=[("traceparent", trace)], timeout=HANG)
    with pytest.raises(grpc.RpcError):  # two of them are none
        calls[0](metadata=[("traceparent", TRACEPARENT)] * 2, timeout=HANG)
    client.close()
    assert server.stop() == 0
    raw = server.log_path.read_bytes()
    assert b"\x1b" not in raw and b"\r" not in raw and "\u0085".encode() not in raw
    # splitlines also splits at separators that only some programs know.
    lines = raw.decode().splitlines()
    assert len(lines) == raw.count(b"\n")
    calls_logged = [line for line in lines[before:] if re.search(r'"event":"rpc"| rpc ', line)]
    assert len(calls_logged) == 5 * len(calls) + 1
    assert sum(TRACEPARENT in line for line in calls_logged) == len(calls)
    assert all(len(line) < 8000 for line in lines)
    if form == "json":
        assert not any(json.loads(line)["event"] == "forged" for line in lines)
    else:
        assert all(re.match(r"20\d\d-\S+Z (debug|info|warning|error) ", line) for line in lines)


def test_errors_of_the_cli_name_the_trace_of_the_log(start_server):
    server = start_server("--log-format", "json")
    done = Cli(server.address).run("status", "jobs/none").refused(3, "jobs/none")
    trace = re.search(r" \[trace ([0-9a-f]{32})\]$", done.sentence)[1]
    [line] = events(server, "rpc", job="jobs/none")
    assert line["traceparent"].split("-")[1] == trace and line["code"] == "NOT_FOUND"
    again = Cli(server.address).run("status", "jobs/none").refused(3)
    assert trace not in again.sentence, "every run has its own"
    given = Cli(server.address).run("status", "jobs/none", env={"TRACEPARENT": TRACEPARENT})
    assert given.sentence.endswith(f"[trace {TRACE}]")
    assert "[trace" not in Cli("127.0.0.1:1").run("info", "--timeout", "1s").refused(3).sentence


def test_settings_in_log_and_info(start_server, folder):
    config = folder / "server.conf"
    config.write_text("max-queued-jobs = 77\n")
    tenants = folder / "tenants"
    tenants.write_text("[*]\n")
    server = start_server("--config", config, "--log-format", "json", "--host-memory", "256MiB",
                          "--tenants", tenants, env={"SPARSEFW_IO_THREADS": "3"})
    logged = {line["name"]: (line["value"], line["source"]) for line in events(server, "setting")}
    assert logged["max-queued-jobs"] == ("77", "file")
    assert logged["host-memory"] == ("256MiB", "flag")
    assert logged["io-threads"] == ("3", "environment")
    assert logged["drain-grace"] == ("30s", "default")
    assert logged["state-dir"] == (str(server.state_dir), "flag")
    assert logged["tenants"][0] == str(tenants)
    cli = Cli(server.address)
    settings = cli.run("info", "--json").expect(0).json()["settings"]
    assert settings["max-queued-jobs"] == {"value": "77", "source": "file"}
    assert settings["io-threads"] == {"value": "3", "source": "environment"}
    private = {"listen", "metrics-listen", "spool-dir", "state-dir", "tenants", "tls-cert",
               "tls-client-ca", "tls-key", "tokens"}
    assert set(settings) == set(logged) - private
    text = cli.run("info").expect(0).out
    assert "max-queued-jobs = 77 (file)" in text and "host-memory = 256MiB (flag)" in text
    assert str(server.state_dir) not in text + json.dumps(settings)
    assert server.stop() == 0

    # A start that fails says why, and nothing else.
    failed = start_server("--tokens", folder / "none", "--log-format", "json", wait=False)
    assert failed.wait() == 2
    assert len(failed.log().splitlines()) == 1

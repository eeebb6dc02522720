#!/usr/bin/env python3
"""How long one tenant's calls take while another one floods the server and cancels.

    SPARSEFW_BIN_DIR=build/bin tests/integration/measure_floods.py [SECONDS]

Prints, without a flood and under each: median, 99 % and worst of the other tenant's calls, and how
long the flooding tenant's token works after it was taken out of the file. The sender is a process of
its own and comes from another address, since clients of one address share the memory of connections.
No test: the figures are those of the machine and what else it does.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", HERE.parents[1] / "build/bin")).resolve()
os.environ["SPARSEFW_BIN_DIR"] = str(BIN_DIR)
sys.path[:0] = [str(HERE), os.environ.get("SPARSEFW_STUBS_DIR",
                                          str(BIN_DIR.parent / "tests/integration/stubs"))]

import grpc  # noqa: E402

from sparsefw.v1 import prune_service_pb2  # noqa: E402
from support.floods import FLOODS, Checks, Sums, Tenant, Wide  # noqa: E402
from support.identity import TOKENS, write_tokens  # noqa: E402
from support.processes import Server  # noqa: E402

FLOODER, OTHER = "alice", "bob"
KINDS = {kind.__name__: kind for kind in (*FLOODS, Wide)}
COUNT = 400


def flood(name, address):
    """Until standard input ends."""
    Sums.parts_count, Sums.width, Checks.size, Wide.width = 100, 1024, 8192, 8192
    kind = KINDS[name](Tenant(address, FLOODER))
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        calls = kind.send(COUNT)
        time.sleep(0.5)
        if name != "Wide":
            for call in calls:
                call.cancel()
            kind.close()


@contextlib.contextmanager
def flooding(name, address):
    process = subprocess.Popen([sys.executable, __file__, "--flood", name, address],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.wait()


def calls_of(tenant):
    spec = tenant.small_spec()
    job = tenant.call(tenant.client.jobs.CreateJob,
                      prune_service_pb2.CreateJobRequest(spec=spec)).name
    parts = [tenant.gram(8), tenant.gram(8)]
    return {"GetJob": lambda: tenant.get_job(job), "CancelJob": lambda: tenant.cancel_job(job),
            "ListJobs": tenant.list_jobs, "CreateJob": lambda: tenant.check_job(spec),
            "ListTensors": tenant.list_tensors, "CreateUpload": tenant.create_upload,
            "SumGrams": lambda: tenant.sum_grams(parts), "AccumulateGram": lambda: tenant.gram(8)}


def measure(what, calls, seconds):
    times = {name: [] for name in calls}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, call in calls.items():
            begin = time.monotonic()
            call()
            times[name].append(time.monotonic() - begin)
            time.sleep(0.01)
    for name, values in times.items():
        values.sort()
        p99 = values[int(0.99 * (len(values) - 1))]
        print(f"{what:12} {name:15} {len(values):5} calls  median {values[len(values) // 2] * 1e3:7.1f} ms"
              f"  99 % {p99 * 1e3:7.1f} ms  worst {values[-1] * 1e3:7.1f} ms", flush=True)


def revoke(name, address, tokens):
    tenant = Tenant(address, FLOODER)
    tenant.list_tensors()
    begin = time.monotonic()
    write_tokens(tokens, **{OTHER: TOKENS[OTHER]})
    try:
        while time.monotonic() - begin < 120:
            tenant.call(tenant.client.jobs.GetServerInfo, prune_service_pb2.GetServerInfoRequest())
            time.sleep(0.02)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
    print(f"{name:12} the removed token worked for {time.monotonic() - begin:.2f} s more", flush=True)


def main():
    if sys.argv[1:2] == ["--flood"]:
        return flood(*sys.argv[2:])
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name in [None, *KINDS]:
        with tempfile.TemporaryDirectory(prefix="sparsefw-floods-") as folder:
            tokens = write_tokens(Path(folder) / "tokens", **{who: TOKENS[who]
                                                              for who in (FLOODER, OTHER)})
            server = Server(folder, "--listen", "[::]:0", "--insecure", "--metrics-listen", "127.0.0.1:0",
                            "--state-dir", Path(folder) / "state", "--device", "cpu", "--tokens", tokens,
                            "--store", "memory", "--host-memory", "12GiB", defaults=False)
            port = server.address.rsplit(":", 1)[1]
            flooder, other = f"[::1]:{port}", f"127.0.0.1:{port}"
            try:
                calls = calls_of(Tenant(other, OTHER))
                if name is None:
                    measure("undisturbed", calls, seconds)
                    continue
                with flooding(name, flooder):
                    measure(name, calls, seconds)
                    revoke(name, flooder, tokens)
            finally:
                server.close()


if __name__ == "__main__":
    main()

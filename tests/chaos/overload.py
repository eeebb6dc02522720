"""Offers the server several times the work that it can do, and checks that it refuses the rest in
good order: RESOURCE_EXHAUSTED with a retry delay and nothing else, while control calls stay quick.
See script/overload."""
import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import paths  # noqa: F401
import grpc
import variants as variants_module
from google.rpc import error_details_pb2, status_pb2
from support.processes import Server
from support.rpc import Client, prune_service_pb2, tensor_pb2, tensor_service_pb2

SUBMITTERS, UPLOADERS = 8, 4


def parse():
    parser = argparse.ArgumentParser(prog="script/overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--times", type=float, default=4, help="of what the server can do")
    parser.add_argument("--most-p99-ms", type=float, default=100)
    return parser.parse_args()


def outcome(call):
    """"OK" or code and reason; with a retry delay where there is one."""
    try:
        call()
        return "OK"
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        status = status_pb2.Status.FromString(details)
        delay = any(one.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for one in status.details)
        return f"{error.code().name}{' with a delay' if delay else ' without a delay'}"


class Load:
    def __init__(self, address, variant, seconds):
        self.address, self.variant = address, variant
        self.end = time.monotonic() + seconds
        self.outcomes, self.lock = Counter(), threading.Lock()
        self.milliseconds = []

    def count(self, kind, what):
        with self.lock:
            self.outcomes[f"{kind}: {what}"] += 1

    def submit(self, spec, pause):
        """Open loop: the next job comes when its time has come, whatever became of the last."""
        client = Client(self.address)
        following = time.monotonic()
        while time.monotonic() < self.end:
            request = prune_service_pb2.CreateJobRequest(spec=spec, request_id=str(uuid.uuid4()))
            self.count("CreateJob", outcome(lambda: client.jobs.CreateJob(request, timeout=30)))
            following += pause
            time.sleep(max(0.0, following - time.monotonic()))
        client.close()

    def upload(self):
        """Reserves memory and leaves it, as a client does that has died."""
        client = Client(self.address)
        spec = tensor_pb2.TensorSpec(kind=tensor_pb2.WEIGHT, dtype=tensor_pb2.F32, dims=[1024, 2048])
        while time.monotonic() < self.end:
            request = tensor_service_pb2.CreateUploadRequest(tensor=spec)
            self.count("CreateUpload",
                       outcome(lambda: client.tensors.CreateUpload(request, timeout=30)))
            time.sleep(0.05)
        client.close()

    def control(self):
        client = Client(self.address)
        while time.monotonic() < self.end:
            begin = time.monotonic()
            client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=30)
            self.milliseconds.append(1e3 * (time.monotonic() - begin))
            time.sleep(0.01)
        client.close()

    def run(self, spec, jobs_per_second):
        threads = [threading.Thread(target=self.submit, args=(spec, SUBMITTERS / jobs_per_second))
                   for _ in range(SUBMITTERS)]
        threads += [threading.Thread(target=self.upload) for _ in range(UPLOADERS)]
        threads.append(threading.Thread(target=self.control))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def capacity(client, spec, jobs=10):
    """Jobs a second, when they come one after the other."""
    begin = time.monotonic()
    for _ in range(jobs):
        job = client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec))
        for _ in client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=job.name)):
            pass
    return jobs / (time.monotonic() - begin)


def run(options, folder):
    (folder / "layers").mkdir()
    variant = variants_module.make_small(folder / "layers")[2]
    server = Server(folder, "--workers", "1", "--max-queued-jobs", "20", "--host-memory", "128MiB",
                    "--upload-idle-ttl", "2s", "--gc-interval", "500ms")
    try:
        client = Client(server.address)
        spec = variant.spec(client.upload(variant.layer.weight, "weight"),
                            client.upload(variant.layer.gram, "gram"))
        spec.result_ttl.FromMilliseconds(1000)
        rate = capacity(client, spec)
        load = Load(server.address, variant, options.seconds)
        load.run(spec, options.times * rate)
        client.close()
        assert server.stop() == 0, server.log()[-2000:]
    finally:
        server.close()
    times = sorted(load.milliseconds)
    return {"capacity_jobs_per_second": round(rate, 1), "offered": options.times,
            "seconds": options.seconds, "outcomes": dict(load.outcomes),
            "control_p50_ms": round(times[len(times) // 2], 2),
            "control_p99_ms": round(times[len(times) * 99 // 100], 2)}


def faults(result, most_p99_ms):
    allowed = ("OK", "RESOURCE_EXHAUSTED with a delay")
    found = [f"{count} times {what}" for what, count in result["outcomes"].items()
             if what.split(": ", 1)[1] not in allowed]
    for kind in ("CreateJob", "CreateUpload"):
        for what in allowed:
            if not result["outcomes"].get(f"{kind}: {what}"):
                found.append(f"no {kind} was {what}: that was no overload")
    if result["control_p99_ms"] > most_p99_ms:
        found.append(f"control calls took {result['control_p99_ms']} ms (p99), "
                     f"at most {most_p99_ms:g} are allowed")
    return found


def main():
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="sparsefw-overload-"))
    try:
        result = run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    found = faults(result, options.most_p99_ms)
    for fault in found:
        print(f"script/overload: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

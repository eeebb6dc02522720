"""Offers the server several times the work that it can do, and checks that it refuses the rest in
good order: RESOURCE_EXHAUSTED with a retry delay and nothing else, while control calls stay quick.
See script/overload.

Neither the capacity nor what is quick is assumed. What is accepted while the queue is full is the
capacity, so clients that see few refusals come sooner and those that see many come later; a server that
has nothing to do answers the same control calls in turn."""
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
from support.processes import HANG, Server
from support.rpc import Client, prune_service_pb2, tensor_pb2, tensor_service_pb2

SUBMITTERS, UPLOADERS = 8, 4
OK, REFUSED = "OK", "RESOURCE_EXHAUSTED with a delay"
ENOUGH = 20  # refusals of a kind, and calls of control, that must have been seen
QUICK = 10  # times what the idle server takes are quick in any case


def parse():
    parser = argparse.ArgumentParser(prog="script/overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="longer where too little has happened")
    parser.add_argument("--times", type=float, default=4, help="of what the server can do")
    parser.add_argument("--most-p99-ms", type=float, default=100,
                        help=f"of control calls, beyond {QUICK} times those of an idle server")
    return parser.parse_args()


def outcome(call):
    """"OK" or code and reason; with a retry delay where there is one."""
    try:
        call()
        return OK
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        status = status_pb2.Status.FromString(details)
        delay = any(one.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for one in status.details)
        return f"{error.code().name}{' with a delay' if delay else ' without a delay'}"


class Calls:
    """Calls of a kind from several clients, `times` as many as are accepted."""

    def __init__(self, kind, times):
        self.kind, self.times = kind, times
        self.outcomes, self.lock, self.pause = Counter(), threading.Lock(), 0.1

    def count(self, what):
        with self.lock:
            self.outcomes[what] += 1
            offered, accepted = self.outcomes.total(), self.outcomes[OK]
            self.pause = min(1.0, max(0.001, self.pause * (0.8 if offered < self.times * accepted else 1.1)))

    def enough(self):
        return self.outcomes[REFUSED] >= ENOUGH and self.outcomes.total() >= self.times * self.outcomes[OK]

    def ended(self):
        """Whether there was enough, or something that should never be."""
        return self.enough() or set(self.outcomes) - {OK, REFUSED}


class Load:
    def __init__(self, address, idle, times, seconds):
        self.addresses = {"control": address, "idle": idle}
        self.begin, self.seconds = time.monotonic(), seconds
        self.jobs, self.uploads = Calls("CreateJob", times), Calls("CreateUpload", times)
        self.milliseconds, self.failure = {"control": [], "idle": []}, None

    def goes_on(self):
        seconds = time.monotonic() - self.begin
        done = self.jobs.ended() and self.uploads.ended() and len(self.milliseconds["idle"]) >= ENOUGH
        return not self.failure and seconds < (self.seconds if done else max(self.seconds, HANG))

    def repeat(self, calls, send):
        client = Client(self.addresses["control"])
        while self.goes_on():
            calls.count(outcome(lambda: send(client)))
            time.sleep(calls.pause)
        client.close()

    def submit(self, spec):
        self.repeat(self.jobs, lambda client: client.jobs.CreateJob(
            prune_service_pb2.CreateJobRequest(spec=spec, request_id=str(uuid.uuid4())), timeout=HANG))

    def upload(self):
        """Reserves memory and leaves it, as a client does that has died."""
        spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=[1024, 2048])
        self.repeat(self.uploads, lambda client: client.tensors.CreateUpload(
            tensor_service_pb2.CreateUploadRequest(tensor=spec), timeout=HANG))

    def control(self):
        clients = {name: Client(address) for name, address in self.addresses.items()}
        try:
            while self.goes_on():
                for name, client in clients.items():
                    begin = time.monotonic()
                    client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG)
                    self.milliseconds[name].append(1e3 * (time.monotonic() - begin))
                time.sleep(0.01)
        except grpc.RpcError as error:
            self.failure = f"GetServerInfo: {error.code().name} {error.details()}"
        for client in clients.values():
            client.close()

    def run(self, spec):
        threads = [threading.Thread(target=self.submit, args=(spec,)) for _ in range(SUBMITTERS)]
        threads += [threading.Thread(target=self.upload) for _ in range(UPLOADERS)]
        threads.append(threading.Thread(target=self.control))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def run(options, folder):
    (folder / "layers").mkdir()
    (folder / "idle").mkdir()
    variant = variants_module.make_small(folder / "layers")[2]
    server = Server(folder, "--workers", "1", "--max-queued-jobs", "20", "--host-memory", "128MiB",
                    "--upload-idle-ttl", "2s", "--gc-interval", "500ms")
    idle = Server(folder / "idle")
    try:
        client = Client(server.address)
        spec = variant.spec(client.upload(variant.layer.weight, "weight"),
                            client.upload(variant.layer.gram, "gram"))
        spec.result_ttl.FromMilliseconds(1000)
        load = Load(server.address, idle.address, options.times, options.seconds)
        load.run(spec)
        seconds = time.monotonic() - load.begin
        client.close()
        assert server.stop() == 0, server.log()[-2000:]
    finally:
        server.close()
        idle.close()
    return load, {
        "seconds": round(seconds, 1),
        "accepted_jobs_per_second": round(load.jobs.outcomes[OK] / seconds, 1),
        "offered_jobs_per_second": round(load.jobs.outcomes.total() / seconds, 1),
        "outcomes": {f"{calls.kind}: {what}": count for calls in (load.jobs, load.uploads)
                     for what, count in calls.outcomes.items()},
        **{f"{name}_p{part}_ms": round(percentile(times, part), 2)
           for name, times in load.milliseconds.items() for part in (50, 99)}}


def percentile(values, part):
    return sorted(values)[len(values) * part // 100] if values else float("nan")


def faults(load, result, most_p99_ms):
    found = [load.failure] if load.failure else []
    for calls in (load.jobs, load.uploads):
        found += [f"{count} times {calls.kind}: {what}" for what, count in calls.outcomes.items()
                  if what not in (OK, REFUSED)]
        if not calls.enough() or not calls.outcomes[OK]:
            found.append(f"{calls.kind} {dict(calls.outcomes)}: no overload came about in {HANG:g} s")
    most = most_p99_ms + QUICK * result["idle_p99_ms"]
    if not result["control_p99_ms"] <= most:
        found.append(f"control calls took {result['control_p99_ms']} ms (p99), at most {most:g} are allowed "
                     f"beside {result['idle_p99_ms']} ms of an idle server")
    return found


def main():
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="sparsefw-overload-"))
    try:
        load, result = run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    found = faults(load, result, options.most_p99_ms)
    for fault in found:
        print(f"script/overload: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

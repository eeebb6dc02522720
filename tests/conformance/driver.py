"""A client of any language, told what to do by JSON lines.

A request is an object with `id`, `op`, `client` (a name) and arguments. The program answers every one, in any
order and at the same time, with {"id", "ok": {...}} or {"id", "error": {code, reason, metadata, message,
retry_delay}}; a watch prints {"id", "event": {kind, state, revision}} meanwhile (no heartbeats). What a client
tries again is {"client", "retry": {..., wait}}. Tensors are files of little-endian float32, masks come as they
travel; times are seconds.

    connect        server, token, tls_ca, tls_cert, tls_key, connect_timeout, call_timeout, watch_silence,
                   give_up_after, chunk_bytes
    close, info
    list_tensors   kind (or all)                                        -> names
    list_uploads                                                        -> the same
    delete_upload  name
    upload         kind ("weight", "gram"), shape, file, request_id     -> name, byte_size, tokens
    gram           d_in, file, request_id (activations)                 -> the same
    read           name, file                                           -> the same
    get_tensor, delete_tensor, get_job, cancel_job, delete_job: name
    create_job     weight, gram, method, sparsity, iterations, report_every, deadline, request_id
                   -> name, state, revision, attempts, mask, kept, error
    watch          name, after                                          -> the same, of the end
    prune          weight_file, activations_file, shape, file, and the options of create_job
"""
import itertools
import json
import os
import shlex
import subprocess
import threading
import time

from support.processes import HANG, clean_environment, wait_until


class ClientError(Exception):
    def __init__(self, error):
        super().__init__(f"{error['code']} {error['reason']}: {error['message']}")
        self.code, self.reason, self.message = error["code"], error["reason"], error["message"]
        self.metadata, self.retry_delay = error["metadata"] or {}, error.get("retry_delay")

    @property
    def kind(self):
        return self.code, self.reason


class Pending:
    """A call that is under way."""

    def __init__(self, what):
        self.what, self.events, self.answer, self.done = what, [], None, threading.Event()

    def result(self):
        assert self.done.wait(HANG), f"no answer within {HANG:g} s: {self.what}"
        if "error" in self.answer:
            raise ClientError(self.answer["error"])
        return self.answer["ok"]

    def error(self):
        try:
            value = self.result()
        except ClientError as error:
            return error
        raise AssertionError(f"{self.what} was not refused: {value}")


class Driver:
    """One process of a driver program; several clients may be in it."""

    def __init__(self, command=None):
        self.command = shlex.split(command or os.environ["SPARSEFW_CONFORMANCE_DRIVER"])
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=clean_environment())
        self.lock, self.ids = threading.Lock(), itertools.count(1)
        self.pending, self.retries = {}, {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for text in self.process.stdout:
            line = json.loads(text)
            if "retry" in line:
                self.retries.setdefault(line["client"], []).append(line["retry"])
                continue
            pending = self.pending[line["id"]]
            if "event" in line:
                pending.events.append(line["event"])
            else:
                pending.answer = line
                pending.done.set()
        for pending in self.pending.values():
            if not pending.done.is_set():
                pending.answer = {"error": {"code": "DRIVER", "reason": "", "metadata": {},
                                            "message": "the driver ended"}}
                pending.done.set()

    def start(self, op, client, **arguments):
        request = {"id": next(self.ids), "op": op, "client": client, **arguments}
        self.pending[request["id"]] = pending = Pending(f"{op} {arguments}")
        with self.lock:
            self.process.stdin.write(json.dumps(request, default=str) + "\n")
            self.process.stdin.flush()
        return pending

    def connect(self, server, **options):
        client = Client(self, f"c{next(self.ids)}")
        client.call("connect", server=server, **options)
        return client

    def refuses(self, server, **options):
        return self.start("connect", "refused", server=server, **options).error()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Client:
    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    @property
    def retries(self):
        """What was tried again since the client was made."""
        return list(self.driver.retries.get(self.name, []))

    def start(self, op, **arguments):
        return self.driver.start(op, self.name, **arguments)

    def call(self, op, **arguments):
        return self.start(op, **arguments).result()

    def refuses(self, op, **arguments):
        return self.start(op, **arguments).error()

    def upload(self, tensor, **arguments):
        return self.call("upload", **tensor.upload, **arguments)["name"]

    def read(self, name, path):
        self.call("read", name=name, file=path)
        return path.read_bytes()

    def job(self, layer, **options):
        """A job whose inputs are uploaded with it."""
        return self.call("create_job", weight=self.upload(layer.weight), gram=self.upload(layer.gram),
                         **options)["name"]

    def state(self, job):
        return self.call("get_job", name=job)["state"]

    def wait_for(self, job, state):
        wait_until(lambda: self.state(job) == state, f"{job} is {state}")

    def close(self):
        self.call("close")


def timed(call):
    begin = time.monotonic()
    value = call()
    return value, time.monotonic() - begin

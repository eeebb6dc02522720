"""The Python client as a program that is told what to do: driver.py [--aio]. See ../driver.py for the protocol."""

import asyncio
import contextlib
import inspect
import json
import os
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "client/python/src")]

import numpy as np  # noqa: E402

import sparsefw  # noqa: E402
import sparsefw.aio  # noqa: E402

_lock = threading.Lock()
_clients = {}


def show(**line):
    with _lock:
        print(json.dumps(line), flush=True)


def error_of(error):
    line = {"code": error.code.name, "reason": error.reason, "metadata": error.metadata, "message": error.message}
    return line if error.retry_delay is None else {**line, "retry_delay": error.retry_delay}


def describe_tensor(tensor):
    return {"name": tensor.name, "byte_size": tensor.byte_size, "tokens": tensor.tokens}


def describe_job(job):
    message = job.message
    line = {"name": job.name, "state": job.state, "revision": job.revision, "attempts": message.attempts,
            "mask": message.result.mask, "kept": message.result.kept_count}
    if message.error.code:
        line["error"] = error_of(sparsefw.errors.from_status(message.error))
    return line


def options_of(request):
    names = ("method", "sparsity", "iterations", "report_every", "deadline")
    return {"sparsity": 0.5, **{name: request[name] for name in names if name in request}}


def array_of(path, shape):
    return np.fromfile(path, "<f4").reshape(shape)


def write(path, array):
    """As on the wire: of a mask a bit an element, every row on a byte of its own."""
    if array.dtype == bool:
        array = np.packbits(array, axis=1, bitorder="little")
    Path(path).write_bytes(array.tobytes())


async def settled(value):
    return await value if inspect.isawaitable(value) else value


async def connect(request, aio):
    names = ("connect_timeout", "call_timeout", "watch_silence", "chunk_bytes")
    retry = sparsefw.Retry(0.05, 0.5, 2.0, request.get("give_up_after", 60.0))
    options = sparsefw.Options(
        **{name: request[name] for name in names if name in request},
        retry=retry,
        on_retry=lambda error, wait: show(client=request["client"], retry={**error_of(error), "wait": wait}),
    )
    credentials = {name: request[name] for name in ("token", "tls_ca", "tls_cert", "tls_key") if name in request}
    function = sparsefw.aio.connect if aio else sparsefw.connect
    _clients[request["client"]] = await settled(function(request["server"], **credentials, options=options))
    return {}


async def watch(client, request):
    job = await settled(client.job(request["name"]))
    events = job.events(request.get("after", 0))

    def tell(event):
        show(id=request["id"], event={"kind": event.kind, "state": event.state, "revision": event.revision})

    if inspect.isasyncgen(events):
        async with contextlib.aclosing(events):
            async for event in events:
                tell(event)
    else:
        for event in events:
            tell(event)
    return describe_job(job)


async def run(request, aio):
    op, name = request["op"], request.get("name", "")
    request_id = request.get("request_id") or None
    if op == "connect":
        return await connect(request, aio)
    client = _clients[request["client"]]
    if op == "close":
        await settled(_clients.pop(request["client"]).close())
        return {}
    if op == "info":
        await settled(client.info())
        return {}
    if op == "upload":
        array = array_of(request["file"], request["shape"])
        return describe_tensor(await settled(client.upload(array, request["kind"], request_id=request_id)))
    if op == "gram":
        array = array_of(request["file"], (-1, request["d_in"]))
        return describe_tensor(await settled(client.gram(array, request_id=request_id)))
    if op == "read":
        tensor = await settled(client.tensor(name))
        write(request["file"], await settled(client.read(tensor)))
        return describe_tensor(tensor)
    if op == "get_tensor":
        return describe_tensor(await settled(client.tensor(name)))
    if op == "list_tensors":
        kinds = [request["kind"]] if "kind" in request else []
        return {"names": [tensor.name for tensor in await settled(client.list(kinds=kinds))]}
    if op == "list_uploads":
        return {"names": [upload.name for upload in await settled(client.uploads())]}
    if op in ("delete_tensor", "delete_job", "delete_upload"):
        await settled(client.delete(name))
        return {}
    return await run_job(client, op, request, request_id)


async def run_job(client, op, request, request_id):
    if op == "create_job":
        job = client.submit(request["weight"], request["gram"], request_id=request_id, **options_of(request))
        return describe_job(await settled(job))
    if op == "get_job":
        return describe_job(await settled(client.job(request["name"])))
    if op == "cancel_job":
        job = await settled(client.job(request["name"]))
        return describe_job(await settled(job.cancel()))
    if op == "watch":
        return await watch(client, request)
    if op == "prune":
        weight = array_of(request["weight_file"], request["shape"])
        activations = array_of(request["activations_file"], (-1, request["shape"][1]))
        result = await settled(client.prune(weight, activations=activations, **options_of(request)))
        write(request["file"], result.mask)
        return describe_job(await settled(client.job(result.job)))
    raise sparsefw.Unimplemented(op)


async def answer(request, aio):
    try:
        show(id=request["id"], ok=await run(request, aio))
    except sparsefw.Error as error:
        show(id=request["id"], error=error_of(error))
    except Exception as error:  # of this program
        show(id=request["id"], error={"code": "DRIVER", "reason": "", "metadata": {}, "message": repr(error)})


def main():
    if sys.argv[1:] == ["--aio"]:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(answer(json.loads(line), aio=True), loop)
    else:
        for line in sys.stdin:
            threading.Thread(target=asyncio.run, args=[answer(json.loads(line), aio=False)], daemon=True).start()
    # Calls that are under way are of no interest any more.
    os._exit(0)


if __name__ == "__main__":
    main()

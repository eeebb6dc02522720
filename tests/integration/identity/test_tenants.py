"""Tenants are sealed off from each other: over real TLS, in every RPC, a name of another
tenant is answered exactly as one that does not exist."""
import hashlib
import sqlite3
import threading
import time

import grpc
import numpy as np
import pytest

from google.rpc import error_details_pb2, status_pb2
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.certificates import Authority
from support.identity import TOKENS, TlsClient, write_tokens
from support.layers import Layer
from support.processes import HANG, wait_until
from support.rpc import chunks, crc32c

PROBED = set()  # the RPCs that a probe has made


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with TLS, alice with something of every kind, and bob."""
    from support.processes import Server
    folder = tmp_path_factory.mktemp("tenants")
    authority = Authority(folder)
    pair = authority.server()
    server = Server(folder, "--tls-cert", pair.certificate, "--tls-key", pair.key,
                    "--tokens", write_tokens(folder / "tokens", **TOKENS))
    try:
        yield World(server, authority, Layer(folder, d_out=24, d_in=32, seed=3))
        assert server.process.poll() is None, server.log()[-4000:]
    finally:
        server.close()


class World:
    def __init__(self, server, authority, layer):
        self.server, self.layer = server, layer
        self.alice = TlsClient(server.address, authority, token=TOKENS["alice"])
        self.bob = TlsClient(server.address, authority, token=TOKENS["bob"])
        client = self.alice
        self.weight, self.gram = (client.upload(layer.weight, "weight"),
                                  client.upload(layer.gram, "gram"))
        self.upload = client.create_upload(layer.weight, "weight", request_id="alices").name
        client.write(self.upload, layer.weight.tobytes()[:1024], finish=False)
        self.finished = client.create_upload(layer.weight, "weight").name
        client.write(self.finished, layer.weight.tobytes())
        self.accumulation = client.tensors.CreateUpload(tensor_service_pb2.CreateUploadRequest(
            gram=tensor_pb2.GramSpec(d_in=32, activation_dtype=tensor_pb2.DATA_TYPE_F32,
                                     gram_dtype=tensor_pb2.DATA_TYPE_F32))).upload.name
        self.ended = self.create(client, iterations=20)
        wait_until(lambda: self.state(self.ended) == job_pb2.JOB_STATE_SUCCEEDED, "the job ends")
        self.mask = client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=self.ended)).result.mask
        self.running = self.create(client, iterations=1 << 40)
        wait_until(lambda: self.state(self.running) == job_pb2.JOB_STATE_RUNNING, "the job runs")
        self.bobs_weight, self.bobs_gram = (self.bob.upload(layer.weight, "weight"),
                                            self.bob.upload(layer.gram, "gram"))

    def spec(self, weight, gram, iterations=20):
        spec = job_pb2.JobSpec(weight=weight, gram=gram, method=job_pb2.METHOD_SPARSEFW)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations = iterations
        return spec

    def create(self, client, iterations):
        spec = self.spec(self.weight, self.gram, iterations)
        spec.labels["project"] = "secret"
        return client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(
            spec=spec, request_id=f"job-{iterations}"), timeout=HANG).name

    def state(self, job):
        return self.alice.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job)).state

    def missing(self, name):
        """A name of the same form that nothing has."""
        kind, identifier = name.split("/")
        digits = hashlib.sha256(identifier.encode()).hexdigest()
        return f"{kind}/{digits[:len(identifier)]}"


def outcome(call, name):
    """What is told, with the name put out: code, message, reason, metadata, retry delay."""
    try:
        response = call()
        answer = [str(one) for one in response] if hasattr(response, "__next__") else str(response)
        return ("OK", answer)
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        told = []
        for detail in status_pb2.Status.FromString(details).details:
            for message in (error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()):
                if detail.Is(message.DESCRIPTOR):
                    detail.Unpack(message)
                    told.append(str(message).replace(name, "NAME"))
        assert told, f"no details: {error}"
        return (error.code().name, error.details().replace(name, "NAME"), *told)


def unary(service, method, **fields):
    """A probe that puts the name into field `name` of the request."""
    def probe(client, name):
        stub = client.jobs if service == "PruneService" else client.tensors
        file = prune_service_pb2 if service == "PruneService" else tensor_service_pb2
        kind = file.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type
        return getattr(stub, method)(kind._concrete_class(name=name, **fields), timeout=HANG)
    probe.rpc = f"{service}/{method}"
    return probe


def write(finish=False, offset=0, data=b"\0" * 64, crc=None):
    def probe(client, name):
        request = tensor_service_pb2.WriteTensorRequest(upload=name, finish=finish)
        if data is not None:
            request.chunk.CopyFrom(tensor_pb2.Chunk(
                offset=offset, data=data, crc32c=crc32c(data) if crc is None else crc))
        return client.tensors.WriteTensor(iter([request]), timeout=HANG)
    probe.rpc = "TensorService/WriteTensor"
    return probe


def accumulate(finish=False, offset=0, data=b"\0" * 128):
    def probe(client, name):
        request = tensor_service_pb2.AccumulateGramRequest(upload=name, finish=finish)
        if data is not None:
            request.token_offset, request.data, request.crc32c = offset, data, crc32c(data)
        return client.tensors.AccumulateGram(iter([request]), timeout=HANG)
    probe.rpc = "TensorService/AccumulateGram"
    return probe


def sum_grams(client, name):
    return client.tensors.SumGrams(tensor_service_pb2.SumGramsRequest(grams=[name]), timeout=HANG)


sum_grams.rpc = "TensorService/SumGrams"


def create_job(field, validate_only=False):
    def probe(client, name, world=None):
        spec = world.spec(world.bobs_weight, world.bobs_gram)
        put(spec, field, name)
        return client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(
            spec=spec, validate_only=validate_only), timeout=HANG)
    probe.rpc = "PruneService/CreateJob"
    return probe


def check_options(field):
    def probe(client, name, world=None):
        spec = world.spec(world.bobs_weight, world.bobs_gram)
        put(spec, field, name)
        return client.jobs.CheckJobOptions(
            prune_service_pb2.CheckJobOptionsRequest(spec=spec), timeout=HANG)
    probe.rpc = "PruneService/CheckJobOptions"
    return probe


def prune(field):
    """The other tensor comes in the stream."""
    def probe(client, name, world=None):
        spec = world.spec("", world.bobs_gram)
        put(spec, field, name)
        header = prune_service_pb2.PruneHeader(spec=spec, weight=tensor_pb2.TensorSpec(
            kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=world.layer.weight.shape))
        data = world.layer.weight.tobytes()
        requests = [prune_service_pb2.PruneRequest(header=header),
                    prune_service_pb2.PruneRequest(weight=tensor_pb2.Chunk(
                        offset=0, data=data, crc32c=crc32c(data)))]
        return list(client.jobs.Prune(iter(requests), timeout=HANG))
    probe.rpc = "PruneService/Prune"
    return probe


def put(spec, field, name):
    if field.startswith("warm_"):
        setattr(spec.warm_start, field[len("warm_"):], name)
    else:
        setattr(spec, field, name)


PROBES = [
    *((unary("PruneService", method), kind) for kind in ("ended", "running")
      for method in ("GetJob", "DeleteJob", "CancelJob", "WatchJob")),
    (unary("PruneService", "WatchJob", after_revision=10**6), "ended"),
    (unary("TensorService", "GetUpload"), "upload"),
    (unary("TensorService", "GetUpload"), "finished"),
    (unary("TensorService", "GetUpload"), "accumulation"),
    (unary("TensorService", "DeleteUpload"), "upload"),
    (unary("TensorService", "DeleteUpload"), "finished"),
    *((unary("TensorService", method), kind) for kind in ("weight", "gram", "mask")
      for method in ("GetTensor", "DeleteTensor", "ReadTensor")),
    (unary("TensorService", "ReadTensor", offset=1 << 40), "weight"),
    (write(), "upload"), (write(finish=True), "upload"), (write(data=None), "upload"),
    (write(data=None, finish=True), "upload"), (write(offset=1 << 30), "upload"),
    (write(crc=1), "upload"), (write(), "accumulation"),
    (write(), "finished"), (write(finish=True), "finished"), (write(data=None), "finished"),
    (write(data=None, finish=True), "finished"), (write(crc=1), "finished"),
    (accumulate(), "accumulation"), (accumulate(finish=True), "accumulation"),
    (accumulate(data=None), "accumulation"), (accumulate(data=None, finish=True), "accumulation"),
    (accumulate(offset=10**6), "accumulation"), (accumulate(), "upload"),
    (accumulate(), "finished"), (accumulate(data=None), "finished"),
    (sum_grams, "gram"), (sum_grams, "weight"),
    *((make(field), "mask" if field == "warm_mask" else "gram" if field == "gram" else "weight")
      for make in (create_job, lambda field: create_job(field, True), check_options)
      for field in ("weight", "gram", "warm_mask", "warm_saliency")),
    *((prune(field), "mask" if field == "warm_mask" else "gram")
      for field in ("gram", "warm_mask", "warm_saliency")),
]


@pytest.mark.parametrize("probe, kind", PROBES, ids=lambda value: getattr(value, "rpc", value))
def test_anothers_name_is_no_name(world, probe, kind):
    name = getattr(world, kind)
    none = world.missing(name)
    more = {"world": world} if "world" in probe.__code__.co_varnames[:3] else {}
    expected = outcome(lambda: probe(world.bob, none, **more), none)
    assert expected[0] in ("NOT_FOUND", "FAILED_PRECONDITION", "DATA_LOSS"), expected
    assert outcome(lambda: probe(world.bob, name, **more), name) == expected
    PROBED.add(probe.rpc)




def test_lists_hold_ones_own(world):
    def listed(client, **fields):
        jobs = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(**fields), timeout=HANG).jobs
        return {job.name for job in jobs}

    assert {world.ended, world.running} <= listed(world.alice)
    assert listed(world.bob) == set()
    assert listed(world.bob, labels={"project": "secret"}) == set()
    assert listed(world.bob, states=[job_pb2.JOB_STATE_RUNNING]) == set()

    def tensors(client, token="", size=1):
        response = client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest(
            page_size=size, page_token=token), timeout=HANG)
        return [tensor.name for tensor in response.tensors], response.next_page_token

    def walk(client, token=""):
        names = []
        while True:
            page, token = tensors(client, token)
            names += page
            if not token:
                return names

    mine = {world.weight, world.gram, world.mask}
    assert mine <= set(walk(world.alice))
    assert set(walk(world.bob)) == {world.bobs_weight, world.bobs_gram}
    def uploads(client):
        response = client.tensors.ListUploads(tensor_service_pb2.ListUploadsRequest(), timeout=HANG)
        return {upload.name for upload in response.uploads}

    assert world.upload in uploads(world.alice)
    assert not uploads(world.alice) & uploads(world.bob)
    # A page token of another's walk opens nothing.
    _, token = tensors(world.alice)
    assert token
    try:
        assert not mine & set(walk(world.bob, token))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    first = world.alice.jobs.ListJobs(prune_service_pb2.ListJobsRequest(page_size=1), timeout=HANG)
    assert first.next_page_token
    try:
        page = world.bob.jobs.ListJobs(prune_service_pb2.ListJobsRequest(
            page_token=first.next_page_token), timeout=HANG)
        assert not page.jobs
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    PROBED.update({"PruneService/ListJobs", "TensorService/ListTensors",
                   "TensorService/ListUploads"})


def test_request_ids_are_ones_own(world):
    """The same id, with the same or another body, means nothing between tenants."""
    mine = world.bob.create_upload(world.layer.weight, "weight", request_id="alices").name
    assert mine != world.upload
    world.bob.create_upload(np.zeros((8, 8), "<f4"), "weight", request_id="bobs")
    world.alice.create_upload(world.layer.weight, "weight", request_id="bobs")
    PROBED.add("TensorService/CreateUpload")
    spec = world.spec(world.bobs_weight, world.bobs_gram)
    job = world.bob.jobs.CreateJob(prune_service_pb2.CreateJobRequest(
        spec=spec, request_id="job-20"), timeout=HANG).name
    assert job not in (world.ended, world.running)


def test_the_server_says_nothing_of_others(world):
    answer = str(world.bob.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(),
                                              timeout=HANG))
    for secret in ("alice", world.weight, world.running, "secret"):
        assert secret not in answer
    PROBED.add("PruneService/GetServerInfo")


def test_a_name_with_a_line_break_asks_about_no_other(world):
    """The second line of the first name is no metadata of the answer about it."""
    def ask(gram):
        spec = world.spec("tensors/x\nfield=gram\ntensor=-", gram)
        return outcome(lambda: world.bob.jobs.CreateJob(
            prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG), gram)

    assert ask(world.gram) == ask(world.missing(world.gram))


def test_a_look_at_anothers_upload_writes_nothing(world):
    """A stream is under way: its bytes are recorded when it says so, or alice looks."""
    upload = world.alice.create_upload(world.layer.weight, "weight").name
    name = upload.split("/")[1]
    sent, go_on = threading.Event(), threading.Event()

    def requests():
        yield next(chunks(upload, world.layer.weight.tobytes()[:1024], finish=False))
        sent.set()
        go_on.wait(HANG)

    def committed():
        database = sqlite3.connect(world.server.state_dir / "sparsefw.db", timeout=HANG)
        try:
            return database.execute("SELECT committed FROM tensors WHERE id = ?", (name,)).fetchone()[0]
        finally:
            database.close()

    response = world.alice.tensors.WriteTensor.future(requests(), timeout=HANG)
    sent.wait(HANG)
    deadline = time.monotonic() + 1  # longer than a chunk takes to arrive
    while time.monotonic() < deadline:
        with pytest.raises(grpc.RpcError) as raised:
            world.bob.tensors.GetUpload(tensor_service_pb2.GetUploadRequest(name=upload), timeout=HANG)
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
        assert committed() == 0
    world.alice.tensors.GetUpload(tensor_service_pb2.GetUploadRequest(name=upload), timeout=HANG)
    assert committed() == 1024
    go_on.set()
    response.result(HANG)


def test_nothing_of_alices_was_touched(world):
    """After all that bob has tried."""
    assert world.state(world.running) == job_pb2.JOB_STATE_RUNNING
    assert world.state(world.ended) == job_pb2.JOB_STATE_SUCCEEDED
    upload = world.alice.tensors.GetUpload(
        tensor_service_pb2.GetUploadRequest(name=world.upload), timeout=HANG)
    assert upload.committed_size == 1024
    assert world.alice.read(world.weight) == world.layer.weight.tobytes()
    response = world.alice.tensors.WriteTensor(
        chunks(world.upload, world.layer.weight.tobytes()), timeout=HANG)
    assert response.tensor.name
    accumulation = world.alice.tensors.GetUpload(
        tensor_service_pb2.GetUploadRequest(name=world.accumulation), timeout=HANG)
    assert accumulation.committed_tokens == 0


def test_every_rpc_was_probed():
    every = {f"{service.name}/{method.name}"
             for file in (prune_service_pb2, tensor_service_pb2)
             for service in file.DESCRIPTOR.services_by_name.values()
             for method in service.methods}
    assert PROBED == every

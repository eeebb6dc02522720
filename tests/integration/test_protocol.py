"""The promises of the .proto files, kept towards a client that is not ours."""
import threading
import time

import grpc
import numpy as np
import pytest

from google.protobuf import duration_pb2
from support.floods import metric
from support.processes import HANG, wait_until
from support.rpc import (Client, chunks, crc32c, error_info, job_pb2, prune_service_pb2, tensor_pb2,
                         tensor_service_pb2)

CODE = grpc.StatusCode


def refused(code, reason, call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as raised:
        result = call(*arguments, timeout=HANG, **options)
        if hasattr(result, "__next__"):
            list(result)
    got_code, got_reason, metadata = error_info(raised.value)
    assert (got_code, got_reason) == (code, reason), raised.value.details()
    return raised.value.details(), metadata


def spec_of(client, layer, **sparsefw):
    pattern = job_pb2.Pattern(per_row=job_pb2.Pattern.PerRow(sparsity=0.6))
    return job_pb2.JobSpec(
        weight=client.upload(layer.weight, "weight"), gram=client.upload(layer.gram, "gram"),
        method=job_pb2.METHOD_SPARSEFW, pattern=pattern,
        sparsefw=job_pb2.SparseFwOptions(**{"iterations": 50, "report_every": 10, **sparsefw}))


def create(client, spec, **fields):
    return client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec, **fields), timeout=HANG)


def get(client, name):
    return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=name), timeout=HANG)


def cancel(client, name):
    return client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=name), timeout=HANG)


def test_gap_checksum_and_incomplete_upload(client, layer):
    raw = layer.weight.tobytes()
    upload = client.create_upload(layer.weight, "weight").name
    first = next(chunks(upload, raw, chunk=1000, finish=False))
    client.tensors.WriteTensor(iter([first]), timeout=HANG)

    def one(offset, data, crc=None, finish=False):
        chunk = tensor_pb2.Chunk(offset=offset, data=data, crc32c=crc32c(data) if crc is None else crc)
        return iter([tensor_service_pb2.WriteTensorRequest(upload=upload, chunk=chunk,
                                                           finish=finish)])

    _, metadata = refused(CODE.FAILED_PRECONDITION, "OFFSET_GAP", client.tensors.WriteTensor,
                          one(1004, raw[1004:1100]))
    assert metadata["committed_size"] == "1000"
    _, metadata = refused(CODE.DATA_LOSS, "CHECKSUM_MISMATCH", client.tensors.WriteTensor,
                          one(1000, raw[1000:1100], crc=1))
    assert metadata["committed_size"] == "1000"
    _, metadata = refused(CODE.FAILED_PRECONDITION, "INCOMPLETE", client.tensors.WriteTensor,
                          one(1000, raw[1000:1100], finish=True))
    assert metadata["committed_size"] == "1100"
    tensor = client.write(upload, raw, begin=1100).tensor
    assert client.read(tensor.name) == raw


def test_reading_a_part(client, layer):
    name = client.upload(layer.weight, "weight")
    read = lambda offset, limit: b"".join(
        part.chunk.data for part in client.tensors.ReadTensor(
            tensor_service_pb2.ReadTensorRequest(name=name, offset=offset, limit=limit), timeout=HANG))
    raw = layer.weight.tobytes()
    assert read(100, 50) == raw[100:150] and read(len(raw) - 3, 100) == raw[-3:]
    refused(CODE.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", client.tensors.ReadTensor,
            tensor_service_pb2.ReadTensorRequest(name=name, offset=len(raw) + 1))


def test_uploads_are_idempotent_by_request_id(client, layer):
    one = client.create_upload(layer.weight, "weight", request_id="upload-7")
    again = client.create_upload(layer.weight, "weight", request_id="upload-7")
    assert one.name == again.name
    other = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=[3, 3])
    request = tensor_service_pb2.CreateUploadRequest(tensor=other, request_id="upload-7")
    refused(CODE.INVALID_ARGUMENT, "REQUEST_ID_REUSED", client.tensors.CreateUpload, request)
    tensor = client.write(one.name, layer.weight.tobytes()).tensor
    response = client.tensors.CreateUpload(tensor_service_pb2.CreateUploadRequest(
        tensor=one.spec, request_id="upload-7"))
    assert response.tensor.name == tensor.name


@pytest.mark.parametrize("dims", [[], [3], [0, 3], [-1, 3], [1 << 62, 1 << 62], [1, 2, 3]])
def test_impossible_sizes_are_refused_before_a_byte_is_sent(client, dims):
    spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=dims)
    refused(CODE.INVALID_ARGUMENT, "SPEC_INVALID", client.tensors.CreateUpload,
            tensor_service_pb2.CreateUploadRequest(tensor=spec))


def test_five_gibibytes_are_too_much_or_accepted_but_never_wrapped(client):
    dims = [36000, 36000]  # 5.2e9 bytes: more than 32 bits can say
    spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=dims)
    request = tensor_service_pb2.CreateUploadRequest(tensor=spec)
    upload = client.tensors.CreateUpload(request, timeout=HANG).upload
    far = tensor_pb2.Chunk(offset=5_000_000_000, data=b"abcd", crc32c=crc32c(b"abcd"))
    _, metadata = refused(CODE.FAILED_PRECONDITION, "OFFSET_GAP", client.tensors.WriteTensor,
                          iter([tensor_service_pb2.WriteTensorRequest(upload=upload.name, chunk=far)]))
    assert metadata["committed_size"] == "0"
    spec.dims[:] = [360000, 360000]
    refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_TOO_LARGE", client.tensors.CreateUpload,
            tensor_service_pb2.CreateUploadRequest(tensor=spec))
    client.tensors.DeleteUpload(tensor_service_pb2.DeleteUploadRequest(name=upload.name))


def test_job_runs_and_is_watched(client, layer):
    job = create(client, spec_of(client, layer))
    assert job.name.startswith("jobs/") and list(job.shape) == [24, 32]
    events = list(client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=job.name), timeout=HANG))
    assert events[0].kind == job_pb2.JobEvent.KIND_SNAPSHOT
    revisions = [event.job.revision for event in events]
    assert revisions == sorted(revisions)
    assert events[-1].job.state == job_pb2.JOB_STATE_SUCCEEDED
    result = get(client, job.name).result
    assert result == events[-1].job.result
    mask = np.unpackbits(np.frombuffer(client.read(result.mask), np.uint8), bitorder="little")
    assert mask.sum() == result.kept_count == 24 * (32 - 19)
    # A watcher that comes back later still gets a snapshot, and the end.
    late = list(client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(
        name=job.name, after_revision=revisions[-1]), timeout=HANG))
    assert late[0].kind == job_pb2.JobEvent.KIND_SNAPSHOT and late[-1].job.state == job_pb2.JOB_STATE_SUCCEEDED


def goes_on(client, job):
    """The job makes progress after the server has handled what came before this call."""
    for _ in range(3):
        before = get(client, job).progress.iteration
        wait_until(lambda: get(client, job).progress.iteration > before
                   or get(client, job).state != job_pb2.JOB_STATE_RUNNING, "progress or an end")
        assert get(client, job).state == job_pb2.JOB_STATE_RUNNING


def test_watch_reports_progress_and_heartbeats_and_closing_it_cancels_nothing(client, big_layer):
    job = create(client, spec_of(client, big_layer, iterations=10**12, report_every=20))
    watch = client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(
        name=job.name, heartbeat_interval=duration_pb2.Duration(nanos=100_000_000)), timeout=HANG)
    seen = []
    for event in watch:
        if event.kind == job_pb2.JobEvent.KIND_PROGRESS:
            seen.append(event.job.progress)
        if len(seen) == 3:
            break
    watch.cancel()
    assert [p.iteration for p in seen] == sorted({p.iteration for p in seen})
    for progress in seen:
        assert progress.gap >= 0 and progress.relaxed_loss > 0 and progress.best_loss > 0
        assert progress.iterations_total == 10**12
    goes_on(client, job.name)
    cancel(client, job.name)
    wait_until(lambda: get(client, job.name).state == job_pb2.JOB_STATE_CANCELLED, "cancelled")
    result = get(client, job.name).result
    assert result.stop_reason == job_pb2.STOP_REASON_CANCELLED and result.mask
    assert cancel(client, job.name).state == job_pb2.JOB_STATE_CANCELLED


def test_cancel_while_queued_and_after_the_end(client, big_layer):
    spec = spec_of(client, big_layer, iterations=10**12, report_every=20)
    busy = [create(client, spec) for _ in range(2)]  # the server has two workers
    wait_until(lambda: all(get(client, job.name).state == job_pb2.JOB_STATE_RUNNING for job in busy), "both run")
    queued = create(client, spec)
    assert get(client, queued.name).state == job_pb2.JOB_STATE_QUEUED
    refused(CODE.FAILED_PRECONDITION, "JOB_NOT_FINISHED", client.jobs.DeleteJob,
            prune_service_pb2.DeleteJobRequest(name=queued.name))
    assert cancel(client, queued.name).state == job_pb2.JOB_STATE_CANCELLED
    assert not get(client, queued.name).result.mask
    for job in busy:
        cancel(client, job.name)
        wait_until(lambda: get(client, job.name).state == job_pb2.JOB_STATE_CANCELLED, "cancelled")
    done = create(client, spec_of(client, big_layer, iterations=1))
    wait_until(lambda: get(client, done.name).state == job_pb2.JOB_STATE_SUCCEEDED, "succeeds")
    assert cancel(client, done.name).state == job_pb2.JOB_STATE_SUCCEEDED


def test_jobs_are_idempotent_by_request_id_and_can_be_tried_out(client, layer):
    spec = spec_of(client, layer)
    one = create(client, spec, request_id="job-7")
    assert create(client, spec, request_id="job-7").name == one.name
    changed = job_pb2.JobSpec()
    changed.CopyFrom(spec)
    changed.sparsefw.iterations = 51
    request = prune_service_pb2.CreateJobRequest(spec=changed, request_id="job-7")
    refused(CODE.INVALID_ARGUMENT, "REQUEST_ID_REUSED", client.jobs.CreateJob, request)
    assert create(client, changed, validate_only=True).name == ""
    changed.sparsefw.alpha = 1.5
    message, _ = refused(CODE.INVALID_ARGUMENT, "OPTION_INVALID", client.jobs.CreateJob,
                         prune_service_pb2.CreateJobRequest(spec=changed, validate_only=True))
    assert "alpha" in message and "1.5" in message


def test_unknown_names_and_tensors_in_use(client, big_layer):
    refused(CODE.NOT_FOUND, "JOB_NOT_FOUND", client.jobs.GetJob,
            prune_service_pb2.GetJobRequest(name="jobs/none"))
    refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND", client.tensors.GetTensor,
            tensor_service_pb2.GetTensorRequest(name="tensors/none"))
    refused(CODE.NOT_FOUND, "UPLOAD_NOT_FOUND", client.tensors.GetUpload,
            tensor_service_pb2.GetUploadRequest(name="uploads/none"))
    spec = spec_of(client, big_layer, iterations=10**12)
    job = create(client, spec)
    refused(CODE.FAILED_PRECONDITION, "TENSOR_IN_USE", client.tensors.DeleteTensor,
            tensor_service_pb2.DeleteTensorRequest(name=spec.gram))
    cancel(client, job.name)
    wait_until(lambda: get(client, job.name).state == job_pb2.JOB_STATE_CANCELLED, "cancelled")
    client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=spec.gram))
    refused(CODE.FAILED_PRECONDITION, "TENSOR_NOT_FOUND", client.jobs.CreateJob,
            prune_service_pb2.CreateJobRequest(spec=spec))


def prune_requests(layer, detach=False, iterations=50, hold=None):
    pattern = job_pb2.Pattern(nm=job_pb2.Pattern.KeepOfGroup(keep=2, group=4))
    spec = job_pb2.JobSpec(method=job_pb2.METHOD_SPARSEFW, pattern=pattern,
                           sparsefw=job_pb2.SparseFwOptions(iterations=iterations, report_every=10))
    tensor = lambda kind, array: tensor_pb2.TensorSpec(kind=kind, dtype=tensor_pb2.DATA_TYPE_F32,
                                                       dims=array.shape)
    yield prune_service_pb2.PruneRequest(header=prune_service_pb2.PruneHeader(
        spec=spec, weight=tensor(tensor_pb2.TENSOR_KIND_WEIGHT, layer.weight),
        gram=tensor(tensor_pb2.TENSOR_KIND_GRAM, layer.gram), detach=detach))
    for field, array in (("weight", layer.weight), ("gram", layer.gram)):
        raw = array.tobytes()
        for offset in range(0, len(raw), 100_000):
            data = raw[offset:offset + 100_000]
            yield prune_service_pb2.PruneRequest(
                **{field: tensor_pb2.Chunk(offset=offset, data=data, crc32c=crc32c(data))})
    if hold:
        hold.wait(HANG)


def test_prune_in_one_call(client, layer):
    responses = list(client.jobs.Prune(prune_requests(layer), timeout=HANG))
    assert responses[0].accepted.job.startswith("jobs/")
    final = responses[-1].job
    assert final.state == job_pb2.JOB_STATE_SUCCEEDED and final.name == responses[0].accepted.job
    mask = b"".join(r.mask.data for r in responses if r.WhichOneof("message") == "mask")
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little").reshape(24, 8, 4)
    assert (bits.sum(axis=2) == 2).all()
    assert any(r.WhichOneof("message") == "event" for r in responses)


def test_the_header_of_an_idle_stream_counts_without_what_nobody_knows(shared_server, layer):
    """Streams that send a header and no more: the memory of each is its peer's."""
    channel = grpc.insecure_channel(shared_server.address)
    request = next(prune_requests(layer))
    padding = 1_000_000
    length = lambda size: bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    header = request.header.SerializeToString() + b"\xa2\x06" + length(padding) + bytes(padding)  # field 100
    quiet = threading.Event()

    def requests():
        yield b"\x0a" + length(len(header)) + header
        quiet.wait(HANG)

    before = metric(shared_server, "sparsefw_held_bytes")
    call = channel.stream_stream("/sparsefw.v1.PruneService/Prune")(requests())
    wait_until(lambda: metric(shared_server, "sparsefw_uploads") == 2, "the header is handled")
    wait_until(lambda: metric(shared_server, "sparsefw_held_bytes") < before + 100_000, "the message is gone")
    assert metric(shared_server, "sparsefw_held_bytes") > before + 500
    call.cancel()
    quiet.set()
    channel.close()


@pytest.mark.parametrize("detach", [False, True])
def test_closing_prune_early_cancels_unless_detached(client, big_layer, detach):
    hold = threading.Event()
    call = client.jobs.Prune(prune_requests(big_layer, detach, 10**12, hold), timeout=HANG)
    name = next(iter(call)).accepted.job
    wait_until(lambda: get(client, name).state == job_pb2.JOB_STATE_RUNNING, "runs")
    call.cancel()
    hold.set()
    if detach:
        goes_on(client, name)
        cancel(client, name)
    wait_until(lambda: get(client, name).state == job_pb2.JOB_STATE_CANCELLED, "cancelled")


def test_listing_is_paged_and_filtered(client, layer):
    spec = spec_of(client, layer, iterations=1)
    spec.labels["test"] = "paging"
    names = {create(client, spec).name for _ in range(5)}
    seen, token = [], ""
    while True:
        page = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(
            page_size=2, page_token=token, labels={"test": "paging"}), timeout=HANG)
        assert len(page.jobs) <= 2
        seen += [job.name for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert len(seen) == 5 and set(seen) == names
    refused(CODE.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", client.jobs.ListJobs,
            prune_service_pb2.ListJobsRequest(page_token="nonsense"))


def test_a_filter_is_bounded_as_a_job_is(client, layer):
    """Every state and label would be a part of a query, for which others wait."""
    spec = spec_of(client, layer, iterations=1)
    labels = {f"key{i}": "x" for i in range(64)}
    spec.labels.update(labels)
    name = create(client, spec).name
    states = [job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_SUCCEEDED] * 80_000
    page = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(states=states, labels=labels),
                                timeout=HANG)
    assert [job.name for job in page.jobs] == [name]
    for more in (1, 2000):
        labels.update({f"more{i}": "x" for i in range(more)})
        refused(CODE.INVALID_ARGUMENT, "LABELS_INVALID", client.jobs.ListJobs,
                prune_service_pb2.ListJobsRequest(labels=labels))


def test_server_info(client):
    info = client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG)
    assert info.version and info.default_device == "cpu" and info.workers == 2
    assert job_pb2.METHOD_SPARSEFW in info.methods and job_pb2.METHOD_SPARSEGPT in info.methods
    assert info.max_message_bytes >= 2 << 20 and not info.draining


def test_garbage_on_the_wire_ends_one_call_only(client, shared_server):
    call = client.channel.unary_unary("/sparsefw.v1.PruneService/CreateJob",
                                      request_serializer=bytes, response_deserializer=bytes)
    refused(CODE.INVALID_ARGUMENT, "MESSAGE_INVALID", call, b"\xff" * 100)
    nothing = client.channel.stream_unary("/sparsefw.v1.PruneService/CreateJob",
                                          request_serializer=bytes, response_deserializer=bytes)
    refused(CODE.INVALID_ARGUMENT, "MESSAGE_INVALID", nothing, iter(()))
    with pytest.raises(grpc.RpcError) as raised:
        call(b"\0" * (3 << 20), timeout=HANG)
    assert raised.value.code() == CODE.RESOURCE_EXHAUSTED
    unknown = client.channel.unary_unary("/sparsefw.v1.PruneService/Nothing",
                                         request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as raised:
        unknown(b"", timeout=HANG)
    assert raised.value.code() == CODE.UNIMPLEMENTED
    other = Client(shared_server.address)
    assert other.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG).version
    other.close()


def test_a_weight_lives_as_long_as_activations_come_after_it(start_server, layer):
    server = start_server("--upload-idle-ttl", "1s", "--gc-interval", "100ms")
    client = Client(server.address)
    tokens, d_in = layer.activations.shape
    spec = job_pb2.JobSpec(method=job_pb2.METHOD_WANDA,
                           pattern=job_pb2.Pattern(per_row=job_pb2.Pattern.PerRow(sparsity=0.6)))

    def requests():
        yield prune_service_pb2.PruneRequest(header=prune_service_pb2.PruneHeader(
            spec=spec, activation_tokens=tokens,
            weight=tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32,
                                         dims=layer.weight.shape),
            activations=tensor_pb2.GramSpec(d_in=d_in, activation_dtype=tensor_pb2.DATA_TYPE_F32)))
        data = layer.weight.tobytes()
        yield prune_service_pb2.PruneRequest(
            weight=tensor_pb2.Chunk(offset=0, crc32c=crc32c(data), data=data))
        for part in np.array_split(np.arange(tokens), 20):
            time.sleep(0.15)  # a sender, not a wait
            data = layer.activations[part].tobytes()
            yield prune_service_pb2.PruneRequest(activations=tensor_pb2.Chunk(
                offset=int(part[0]) * d_in * 4, crc32c=crc32c(data), data=data))

    last = list(client.jobs.Prune(requests(), timeout=HANG))[-1]
    assert last.job.state == job_pb2.JOB_STATE_SUCCEEDED
    client.close()


def test_a_request_of_many_empty_messages_is_refused_unread(client, layer):
    """Each takes two bytes of the wire, and dozens of them once it is parsed."""
    spec = spec_of(client, layer)
    spec.sweep.points.extend(job_pb2.SweepPoint() for _ in range(150_000))
    details, _ = refused(CODE.INVALID_ARGUMENT, "MESSAGE_INVALID", client.jobs.CreateJob,
                         prune_service_pb2.CreateJobRequest(spec=spec))
    assert "262144" in details

"""What must hold at the end, whatever happened in between."""
from clients import HistoryWorker, require
from support.rpc import prune_service_pb2, tensor_service_pb2


def pages(call, request, field):
    while True:
        page = call(request)
        yield from getattr(page, field)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def check(client, workers, spool):
    """Over what a calm server says now. Returns how many jobs were checked."""
    records = [record for worker in workers if isinstance(worker, HistoryWorker)
               for record in worker.records]
    names = [record.name for record in records]
    require(len(set(names)) == len(names), "two request ids made one job")
    there = {job.name: job for job in pages(
        client.jobs.ListJobs, prune_service_pb2.ListJobsRequest(page_size=1000), "jobs")}
    tensors = {tensor.name: tensor for tensor in pages(
        client.tensors.ListTensors, tensor_service_pb2.ListTensorsRequest(page_size=1000),
        "tensors")}
    for record in records:
        if record.deleted:
            require(record.name not in there, f"{record.name} was deleted and is back")
            for tensor in record.tensors:
                require(tensor not in tensors, f"{tensor} was deleted and is back")
            continue
        job = there.get(record.name)
        require(job is not None, f"{record.name} was accepted and is gone")
        if record.ended is not None:
            require(job == record.ended, f"{record.name} changed after its end:\n{job}\n"
                    f"{record.ended}")
            require(job.result.mask in tensors, f"{record.name} has lost its mask")
        for tensor in record.tensors:
            require(tensor in tensors, f"{tensor} was complete and is gone")
        again = client.jobs.CreateJob(record.request)
        require(again.name == record.name, f"the request of {record.name} made {again.name}, too")
    files = {"tensors/" + path.name.removesuffix(".tensor") for path in spool.glob("*.tensor")}
    require(not set(tensors) - files, f"tensors without a file: {set(tensors) - files}")
    return len(records)

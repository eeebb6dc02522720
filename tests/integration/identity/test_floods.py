"""Many calls of one tenant: they hold nobody else up, and what was called off costs nothing."""
import grpc
import pytest

from sparsefw.v1 import prune_service_pb2
from support.floods import FLOODS, Tenant, Wide, metric
from support.identity import TOKENS, write_tokens
from support.processes import in_time, Server, wait_until

COUNT = 400


class World:
    """eve's floods and bob, on one server."""

    def __init__(self, folder):
        self.tokens = write_tokens(folder / "tokens", **NAMES)
        self.server = Server(folder, "--tokens", self.tokens, "--store", "memory", "--max-queued-jobs",
                             "1000")
        self.eve, self.bob = (Tenant(self.server.address, name) for name in ("alice", "bob"))
        self.spec = self.bob.small_spec()
        self.job = self.bob.call(self.bob.client.jobs.CreateJob,
                                 prune_service_pb2.CreateJobRequest(spec=self.spec)).name
        self.parts = [self.bob.gram(8), self.bob.gram(8)]
        self.floods = {}

    def flood(self, kind):
        if kind not in self.floods:
            self.floods[kind] = kind(self.eve)
        return self.floods[kind]

    def calls_of_bob(self):
        """One on every kind of thread, and control of jobs."""
        bob = self.bob
        return [lambda: bob.get_job(self.job), lambda: bob.cancel_job(self.job), bob.list_jobs,
                lambda: bob.check_job(self.spec), bob.list_tensors, bob.create_upload,
                lambda: bob.sum_grams(self.parts), lambda: bob.gram(8)]

    def executor(self, what, kind):
        return metric(self.server, f"sparsefw_executor_{what}", executor=kind.executor)


NAMES = {name: TOKENS[name] for name in ("alice", "bob")}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("floods"))
    yield world
    try:
        assert world.server.stop() == 0, world.server.log()[-4000:]
    finally:
        world.server.close()


@pytest.fixture(params=FLOODS, ids=lambda kind: kind.__name__.lower())
def flood(world, request):
    flood = world.flood(request.param)
    flood.one()  # what is computed once is computed
    yield flood
    flood.close()
    wait_until(lambda: metric(world.server, "sparsefw_rpc_in_flight", method=flood.method) == 0,
               "nothing is left of the flood")


def done(futures):
    return sum(future.done() for future in futures)


def test_another_tenant_does_not_wait_for_what_was_sent_before(world, flood):
    """All of the calls are wanted: bob's come between them."""
    before = flood.started(world.server)
    futures = flood.send(COUNT)
    flood.await_arrival(world.server, before, COUNT)
    assert world.executor("queue_length", flood) > 0
    assert world.executor("oldest_wait_seconds", flood) > 0
    first = done(futures)
    for call in world.calls_of_bob():
        call()
    last = done(futures)
    assert last < COUNT, "bob waited until all of eve's calls were answered"
    assert last - first <= COUNT / 4, f"of {COUNT} calls {last - first} were answered before bob's eight"
    for future in futures:
        future.cancel()


def test_what_was_cancelled_is_not_begun(world, flood):
    begun = world.executor("begun_total", flood)
    withdrawn = world.executor("withdrawn_total", flood)
    before = flood.started(world.server)
    futures = flood.send(COUNT)
    flood.await_arrival(world.server, before, COUNT)
    for future in futures:
        future.cancel()
    wait_until(lambda: world.executor("queue_length", flood) == 0, "the queue is empty")
    begun = world.executor("begun_total", flood) - begun
    withdrawn = world.executor("withdrawn_total", flood) - withdrawn
    assert begun + withdrawn == COUNT
    assert begun <= COUNT / 2, "most had not begun when they were cancelled"


def test_a_call_whose_deadline_passes_while_it_waits_is_not_begun(world, flood):
    before = flood.started(world.server)
    futures = flood.send(COUNT)
    flood.await_arrival(world.server, before, COUNT)
    withdrawn = world.executor("withdrawn_total", flood)
    stub, request = flood.call_of(world.eve.client)

    def late(seconds):
        calls = [stub.future(request, timeout=seconds, metadata=world.eve.metadata) for _ in range(50)]
        assert {call.code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        return world.executor("withdrawn_total", flood) > withdrawn

    in_time(late, 0.05)
    assert done(futures) < COUNT, "before the calls that they would have waited for had ended"
    for future in futures:
        future.cancel()


def test_a_removed_token_ends_what_waits(world, flood):
    before = flood.started(world.server)
    futures = flood.send(COUNT)
    flood.await_arrival(world.server, before, COUNT)
    try:
        write_tokens(world.tokens, bob=TOKENS["bob"])
        codes = [future.code() for future in futures]
        # Without it all of them would be OK by now.
        assert codes.count(grpc.StatusCode.UNAUTHENTICATED) >= COUNT / 4, set(codes)
        assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}
        with pytest.raises(grpc.RpcError):
            world.eve.list_tensors()
        world.bob.list_tensors()
    finally:
        write_tokens(world.tokens, **NAMES)
        wait_until(lambda: accepted(world.eve), "the token is good again")


def accepted(tenant):
    try:
        tenant.list_tensors()
    except grpc.RpcError:
        return False
    return True


def test_more_calls_than_may_wait_are_refused(world):
    """Beyond the bound; those before it and those of others are taken."""
    flood = world.flood(FLOODS[0])
    before = flood.started(world.server)
    futures = flood.send(1400)
    flood.await_arrival(world.server, before, 1400)
    world.bob.sum_grams(world.parts)
    refused = [future for future in futures if future.done() and future.exception() is not None]
    assert refused, "1400 calls wait"
    for future in refused:
        assert future.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "at most 1000" in future.details()
    assert metric(world.server, "sparsefw_rpc_refused_total", reason="TOO_MANY_CALLS") >= len(refused)
    for future in futures:
        future.cancel()
    flood.close()


def test_a_sum_that_is_cancelled_leaves_nothing(world):
    """Between two of its blocks."""
    flood = world.flood(FLOODS[0])
    uploads = lambda: metric(world.server, "sparsefw_uploads")  # noqa: E731
    wait_until(lambda: uploads() == 0, "nothing is left of earlier floods")
    for _ in range(20):
        future = flood.send(1)[0]
        wait_until(lambda: uploads() > 0 or future.done(), "the sum has begun")
        future.cancel()
    flood.close()
    wait_until(lambda: uploads() == 0, "no upload is left")


def test_wide_accumulations_hold_nobody_else_up(world):
    """Gram sums have threads of their own."""
    wide = Wide(world.eve)

    def summed():
        return metric(world.server, "sparsefw_rpc_received_bytes_total",
                      method=wide.method) / len(wide.data)

    before = summed()
    wide.send(5)
    try:
        wait_until(lambda: summed() - before >= 40, "all of them sum")
        before = summed()
        for _ in range(60):
            world.bob.list_tensors()
        # On the same threads each of bob's calls would wait for the end of a chunk.
        assert summed() - before < 30
    finally:
        wide.close()

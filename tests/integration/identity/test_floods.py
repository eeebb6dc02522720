"""Many calls of one tenant: they hold nobody else up, and what was called off costs nothing.

What is shown must be seen once, with a queue that was long at the time. Where this program or the machine was
too slow for that, the attempt says nothing and is made again. A server of the wrong kind never shows it."""
import grpc
import pytest

from sparsefw.v1 import prune_service_pb2
from support.floods import FLOODS, Tenant, Wide, metric, usage_of
from support.identity import TOKENS, write_tokens
from support.processes import Server, wait_until
from support.rpc import error_info

COUNT = 400
LONG = 100  # a queue that shows something
THREADS = 8  # more than an executor has: as many may have begun and yet wait for their next piece
CODE = grpc.StatusCode
# What may become of a call: bounds of memory hold beside those of the queue.
ENDS = {CODE.OK, CODE.RESOURCE_EXHAUSTED}


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

    def usage(self, flood):
        return usage_of(self.server, flood.executor)

    def long_queue(self, flood):
        """The usage, where many calls of the flood wait at the server; otherwise sends more of them."""
        flood.top_up(COUNT)
        usage = self.usage(flood)
        return usage if usage.queued >= LONG else None


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
    wait_until(lambda: nothing_is_left(world, flood), "nothing is left of the flood")


def codes(flood):
    return {code for code, _ in flood.ended}


def served(call):
    """Whether the call was not refused for the memory that the flood holds: both are of one address."""
    try:
        call()
    except grpc.RpcError as error:
        assert error_info(error)[:2] == (CODE.RESOURCE_EXHAUSTED, "PEER_MEMORY"), error
        return False
    return True


def test_another_tenant_does_not_wait_for_what_was_sent_before(world, flood):
    """All of the calls are wanted: bob's come between them."""
    def overtakes(call):
        before = world.long_queue(flood)
        if not before:
            return False
        assert before.oldest_wait > 0
        if not served(call):
            return False
        after = world.usage(flood)
        left = after.begun + after.withdrawn - before.begun - before.withdrawn
        return left < before.queued - THREADS

    for number, call in enumerate(world.calls_of_bob()):
        wait_until(lambda call=call: overtakes(call), f"bob's call {number} ends before what waited when it came")
    assert codes(flood) <= ENDS


def test_what_was_cancelled_is_not_begun(world, flood):
    def some_had_not_begun():
        before = world.usage(flood)
        started = flood.started(world.server)
        futures = flood.send(COUNT)
        flood.await_arrival(world.server, started, COUNT)
        for future in futures:
            future.cancel()
        wait_until(lambda: nothing_is_left(world, flood), "the queue is empty")
        after = world.usage(flood)
        withdrawn = after.withdrawn - before.withdrawn
        # Fewer where a call was cancelled before it was queued.
        both = after.begun - before.begun + withdrawn
        assert both <= COUNT
        return withdrawn > 0 and both == COUNT

    wait_until(some_had_not_begun, "cancelled calls leave the queue")


def nothing_is_left(world, flood):
    return metric(world.server, "sparsefw_rpc_in_flight", method=flood.method) == 0 and \
        world.usage(flood).queued == 0


def test_a_call_whose_deadline_passes_while_it_waits_is_not_begun(world, flood):
    stub, request = flood.call_of(world.eve.client)

    def some_were_late():
        before = world.long_queue(flood)
        if not before:
            return False
        # From 50 ms to 5 s: one of them passes after the call has come and before its turn.
        calls = [stub.future(request, timeout=0.05 * 1.1**number, metadata=world.eve.metadata)
                 for number in range(50)]

        def one_has_left():
            flood.top_up(COUNT)
            # The flood itself has no deadline.
            return world.usage(flood).withdrawn > before.withdrawn

        wait_until(lambda: one_has_left() or all(call.done() for call in calls), "all of them end")
        left = one_has_left()
        assert {call.code() for call in calls if call.done()} <= {CODE.DEADLINE_EXCEEDED, *ENDS}
        for call in calls:
            call.cancel()
        return left

    wait_until(some_were_late, "calls whose deadline has passed leave the queue")


def test_a_removed_token_ends_what_waits(world, flood):
    def some_waited():
        before = world.long_queue(flood)
        if not before:
            return False
        try:
            write_tokens(world.tokens, bob=TOKENS["bob"])
            wait_until(lambda: flood.top_up(COUNT) or CODE.UNAUTHENTICATED in codes(flood), "the token is refused")
            wait_until(lambda: flood.look() == 0, "all calls end")
            assert codes(flood) <= {CODE.UNAUTHENTICATED, *ENDS}
            with pytest.raises(grpc.RpcError):
                world.eve.list_tensors()
            wait_until(lambda: served(world.bob.list_tensors), "bob is served")
        finally:
            write_tokens(world.tokens, **NAMES)
            wait_until(lambda: accepted(world.eve), "the token is good again")
        # Nobody cancelled them, and they have no deadline.
        return world.usage(flood).withdrawn > before.withdrawn

    wait_until(some_waited, "calls that wait end with the token")


def accepted(tenant):
    try:
        tenant.list_tensors()
    except grpc.RpcError:
        return False
    return True


def test_more_calls_than_may_wait_are_refused(world):
    """Beyond the bound; those before it and those of others are taken."""
    flood = world.flood(FLOODS[0])

    def refusals():
        return metric(world.server, "sparsefw_rpc_refused_total", reason="TOO_MANY_CALLS")

    def one_is_refused():
        flood.top_up(1600)
        assert world.usage(flood).queued <= 1000 + THREADS
        return any("at most 1000" in details for _, details in flood.ended)

    before = refusals()
    wait_until(one_is_refused, "more than 1000 calls wait")
    wait_until(lambda: served(lambda: world.bob.sum_grams(world.parts)), "bob is served")
    assert codes(flood) <= ENDS
    assert refusals() > before
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

    def overtakes():
        before = world.usage(wide)
        for _ in range(5):
            world.bob.list_tensors()
        after = world.usage(wide)
        # On the same threads each of bob's calls would wait for the end of a chunk, and the next would begin.
        return before.queued > 0 and after.queued > 0 and after.begun == before.begun

    wide.send(5)
    try:
        wait_until(overtakes, "five calls of bob end while the same chunks are summed")
    finally:
        wide.close()

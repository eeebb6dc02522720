"""Watches of jobs: events in order, over broken connections, restarts and drains."""

import contextlib
import signal
import threading

import pytest

import sparsefw
from layers import ENDLESS, Layer, Retries, running


@pytest.fixture(scope="module")
def layer():
    return Layer()


@pytest.fixture(scope="module")
def big():
    return Layer(256, 256, seed=11)


def test_events_end_with_the_job_and_revisions_grow(client, big):
    job = client.submit(big.weight, big.gram, sparsity=0.6, iterations=2000, report_every=100)
    events = list(job.events())
    assert events[0].kind == "SNAPSHOT"
    assert events[-1].ended
    assert events[-1].state == "SUCCEEDED"
    revisions = [event.revision for event in events]
    assert revisions == sorted(revisions)
    reports = [event.progress for event in events if event.kind == "PROGRESS"]
    assert reports
    assert all(report.iterations == 2000 for report in reports)
    assert reports[-1].reduction > 0
    assert job.ended
    assert job.result().iterations == 2000


def test_a_watched_job_keeps_what_progress_leaves_out(client, big):
    """PROGRESS comes without spec, owner and shape."""
    job = client.submit(big.weight, big.gram, sparsity=0.6, labels={"layer": "7.q"}, **ENDLESS)
    with contextlib.closing(job.events()) as events:
        for event in events:
            assert job.labels == {"layer": "7.q"}, event.kind
            assert tuple(job.message.shape) == (256, 256), event.kind
            if event.kind == "PROGRESS" and event.progress.iteration:
                break
    job.cancel().wait()


def test_leaving_events_does_not_cancel(client, big):
    job = client.submit(big.weight, big.gram, sparsity=0.6, **ENDLESS)
    with contextlib.closing(job.events()) as events:
        next(events)
    running(job)
    job.cancel().wait()


def test_a_watch_goes_on_over_broken_connections(shared_server, proxy, big):
    between = proxy(shared_server.address, [])
    retries = Retries()
    with sparsefw.connect(between.address, options=retries.options) as client:
        job = client.submit(big.weight, big.gram, sparsity=0.6, **ENDLESS)
        events = []
        for event in job.events():
            events.append(event)
            if event.progress and event.progress.iteration and not retries.errors:
                between.cuts = [between.received + 1]  # with the next byte of the client
                client.job(job.name)
                continue
            if retries.errors and event.kind == "PROGRESS":
                job.cancel()
        assert between.done
        assert events[-1].state == "CANCELLED"
        assert [event.kind for event in events].count("SNAPSHOT") >= 1


def test_a_job_and_its_watcher_outlive_kill_9(restartable, big):
    server = restartable("--checkpoint-period", "100ms")
    options = {"sparsity": 0.6, "iterations": 3000, "report_every": 100}
    retries = Retries()
    with sparsefw.connect(server.address, options=retries.options) as client:
        undisturbed = client.prune(big.weight, big.gram, **options)
        job = client.submit(big.weight, big.gram, **options)
        states, killed = [], threading.Event()

        def observe(event):
            if not states or states[-1] != event.state:
                states.append(event.state)
            if event.progress and event.progress.iteration and not killed.is_set():
                killed.set()
                server.kill()
                server.again()

        result = job.result(observe)
        assert killed.is_set()
        assert retries.errors
        assert job.message.attempts == 2
        assert states[-3:] == ["QUEUED", "RUNNING", "SUCCEEDED"]
        assert (result.mask == undisturbed.mask).all()
        assert result.losses == undisturbed.losses


def test_a_watcher_goes_on_after_a_drain(restartable, big):
    server = restartable("--drain-grace", "0s")
    retries = Retries()
    with sparsefw.connect(server.address, options=retries.options) as client:
        job = client.submit(big.weight, big.gram, sparsity=0.6, iterations=2000, report_every=100)
        drained = threading.Event()

        def observe(event):
            if event.state == "RUNNING" and not drained.is_set():
                drained.set()
                server.server.signal(signal.SIGTERM)
                assert server.server.wait() == 0
                server.again()

        result = job.result(observe)
        assert drained.is_set()
        assert "DRAINING" in {error.reason for error in retries.errors}
        assert result.state == "SUCCEEDED"
        assert job.message.attempts == 1  # a run that a drain ends does not count


def test_a_watch_on_which_nothing_comes_is_opened_again(start_server, big):
    """As of a server that vanished: it is stopped, and its connections stay open."""
    server = start_server()
    retries = Retries(watch_silence=0.6)
    with sparsefw.connect(server.address, options=retries.options) as client:
        job = client.submit(big.weight, big.gram, sparsity=0.6, **ENDLESS)
        for event in job.events(heartbeats=True):
            if not retries.errors and event.state == "RUNNING":
                server.signal(signal.SIGSTOP)
                threading.Timer(1.5, server.signal, [signal.SIGCONT]).start()
            elif retries.errors:
                job.cancel()
        assert job.state == "CANCELLED"
    assert "UNREACHABLE" in {error.reason for error in retries.errors}


def test_a_revision_that_the_server_does_not_know(client, layer):
    job = client.submit(layer.weight, layer.gram, sparsity=0.5, method="wanda").wait()
    events = list(job.events(after_revision=10**6))
    assert [event.state for event in events] == ["SUCCEEDED"]

"""Jobs: their events, cancelling, deadlines, a full queue, restarts."""
import time
from pathlib import Path

import numpy as np
import pytest

from driver import timed
from support.processes import HANG, in_time, wait_until

ENDLESS = {"method": "sparsefw", "iterations": 10**12, "report_every": 200}


def states(events):
    """The states of the changes, in order."""
    return [event["state"] for event in events if event["kind"] == "STATE_CHANGE"]


def check_order(events):
    """Nothing comes twice, and revisions do not go back."""
    changes = [event["revision"] for event in events if event["kind"] == "STATE_CHANGE"]
    assert changes == sorted(set(changes)), events
    assert events[0]["kind"] == "SNAPSHOT"
    revisions = [event["revision"] for event in events]
    assert revisions == sorted(revisions), events


def kept(mask_bytes, rows, cols):
    bits = np.frombuffer(mask_bytes, np.uint8).reshape(rows, -1)
    return np.unpackbits(bits, axis=1, bitorder="little")[:, :cols].astype(bool)


def test_a_job_from_its_start_to_its_mask(client, layer, folder):
    job = client.job(layer, method="sparsefw", iterations=50, report_every=10, sparsity=0.75)
    watch = client.start("watch", name=job)
    end = watch.result()
    assert end["state"] == "SUCCEEDED" and end["kept"] == 24 * 8
    check_order(watch.events)
    assert watch.events[-1]["state"] == "SUCCEEDED"
    mask = kept(client.read(end["mask"], folder / "mask"), 24, 32)
    assert (mask.sum(axis=1) == 8).all()
    assert client.call("get_job", name=job) == end


def test_a_watch_that_breaks_loses_and_repeats_nothing(driver, start_server, make_proxy, layer):
    """The changes happen while it is broken."""
    server = start_server("--workers", "1")
    proxy = make_proxy(server.address)
    through, direct = driver.connect(proxy.address), driver.connect(server.address)
    blocker = direct.job(layer, **ENDLESS)
    direct.wait_for(blocker, "RUNNING")
    job = direct.job(layer, **ENDLESS)
    watch = through.start("watch", name=job)
    wait_until(lambda: watch.events, "the snapshot")
    assert [(event["kind"], event["state"]) for event in watch.events] == [("SNAPSHOT", "QUEUED")]
    proxy.arm("hold", 0, "down")
    direct.call("cancel_job", name=blocker)
    direct.wait_for(job, "RUNNING")
    assert proxy.held.wait(HANG)
    proxy.release()
    wait_until(lambda: states(watch.events) == ["RUNNING"], "the change that was missed")
    for _ in range(3):  # amid progress
        seen, broken = len(watch.events), len(proxy.done)
        wait_until(lambda seen=seen: len(watch.events) > seen, "progress")
        proxy.arm("reset", 0, "down")
        wait_until(lambda broken=broken: len(proxy.done) > broken, "a break")
    direct.call("cancel_job", name=job)
    assert watch.result()["state"] == "CANCELLED"
    assert states(watch.events)[:2] == ["RUNNING", "CANCELLED"] and len(states(watch.events)) == 2
    check_order(watch.events)
    # From a revision that was seen on, as a later process would.
    again = through.start("watch", name=job, after=watch.events[0]["revision"])
    assert again.result()["state"] == "CANCELLED"
    assert states(again.events) == ["RUNNING", "CANCELLED"]
    # One that the job does not have: the job is read anew.
    anew = through.start("watch", name=job, after=10**9)
    assert anew.result()["state"] == "CANCELLED"
    through.close()
    direct.close()


def test_a_watch_on_which_nothing_comes_is_opened_again(driver, shared_server, make_proxy, client, layer):
    proxy = make_proxy(shared_server.address)
    job = client.job(layer, method="sparsefw", iterations=10**12, report_every=10**9)
    through = driver.connect(proxy.address, watch_silence=0.6)
    watch = through.start("watch", name=job)
    wait_until(lambda: watch.events, "the snapshot")
    proxy.arm("hold", 0, "down")
    # The connection is still there: only the missing heartbeats tell.
    wait_until(lambda: any(retry["reason"] == "UNREACHABLE" for retry in through.retries), "opened again")
    proxy.release()
    client.call("cancel_job", name=job)
    assert watch.result()["state"] == "CANCELLED"
    through.close()


def test_cancelling_in_every_state(driver, start_server, layer, folder):
    server = start_server("--workers", "1")
    client = driver.connect(server.address)
    running = client.job(layer, **ENDLESS)
    wait_until(lambda: client.call("get_job", name=running)["revision"] > 4, "it reports")
    queued = client.job(layer, **ENDLESS)
    client.call("cancel_job", name=queued)
    end = client.call("watch", name=queued)
    assert (end["state"], end["mask"]) == ("CANCELLED", "")
    client.call("cancel_job", name=running)
    end = client.call("watch", name=running)
    assert end["state"] == "CANCELLED" and end["kept"] == 24 * 16
    assert (kept(client.read(end["mask"], folder / "mask"), 24, 32).sum(axis=1) == 16).all()
    done = client.job(layer, method="wanda")
    end = client.call("watch", name=done)
    assert end["state"] == "SUCCEEDED"
    for job, state in ((done, "SUCCEEDED"), (queued, "CANCELLED"), (running, "CANCELLED")):
        before = client.call("get_job", name=job)
        assert before["state"] == state
        assert client.call("cancel_job", name=job) == before, "nothing changes"
    assert client.refuses("cancel_job", name="jobs/none").kind == ("NOT_FOUND", "JOB_NOT_FOUND")
    assert client.retries == []
    client.close()


def test_deadlines_of_jobs(driver, start_server, layer):
    server = start_server("--workers", "1")
    client = driver.connect(server.address)

    def ends(seconds):
        running = client.job(layer, **ENDLESS, deadline=seconds)
        waiting = client.job(layer, **ENDLESS, deadline=seconds / 4)
        waited, ran = (client.call("watch", name=name) for name in (waiting, running))
        return (waited["state"], ran["state"]) == ("FAILED", "SUCCEEDED") and (waited, ran)

    waited, ran = in_time(ends, 1.2)
    assert (waited["error"]["code"], waited["error"]["reason"]) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert ran["mask"], "the best mask so far"
    client.close()


def stopped(process):
    """All of its threads: the signal takes a while to get to each."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def test_a_server_that_does_not_answer(driver, start_server, layer):
    server = start_server()
    _, usual = timed(lambda: driver.connect(server.address).call("info"))
    timeout = 0.4 + 20 * usual
    client = driver.connect(server.address, call_timeout=timeout)
    client.call("info")
    server.signal(19)  # SIGSTOP
    wait_until(lambda: stopped(server.process), "it stops")
    error, seconds = timed(lambda: client.refuses("info"))
    assert error.kind == ("DEADLINE_EXCEEDED", "") and "no answer" in error.message
    assert seconds > 2.7 * timeout, "three attempts"
    assert [retry["code"] for retry in client.retries] == ["DEADLINE_EXCEEDED"] * 2
    call = client.start("create_job", weight="tensors/none", gram="tensors/none")
    wait_until(lambda: len(client.retries) == 3, "one attempt")
    server.signal(18)  # SIGCONT
    assert call.error().reason == "TENSOR_NOT_FOUND", "answered after all"
    client.close()


def test_a_full_queue_is_tried_again_when_the_server_says(driver, start_server, layer):
    server = start_server("--workers", "1", "--max-queued-jobs", "1")
    client = driver.connect(server.address)
    running = client.job(layer, **ENDLESS)
    client.wait_for(running, "RUNNING")
    queued = client.job(layer, **ENDLESS)
    weight, gram = client.upload(layer.weight), client.upload(layer.gram)
    hasty = driver.connect(server.address, give_up_after=0.3)
    error = hasty.refuses("create_job", weight=weight, gram=gram)
    assert error.kind == ("RESOURCE_EXHAUSTED", "QUEUE_FULL") and error.retry_delay == 1.0
    assert "gave up" in error.message
    begin = time.monotonic()
    third = client.start("create_job", weight=weight, gram=gram, method="wanda")
    wait_until(lambda: client.retries, "it is refused once")
    client.call("cancel_job", name=queued)
    job = third.result()["name"]
    assert time.monotonic() - begin >= 1.0, "the server asked for a second"
    assert {retry["reason"] for retry in client.retries} == {"QUEUE_FULL"}
    assert all(retry["retry_delay"] == 1.0 and retry["wait"] >= 1.0 for retry in client.retries)
    client.call("cancel_job", name=running)
    assert client.call("watch", name=job)["state"] == "SUCCEEDED"
    client.close()
    hasty.close()


def test_a_request_id_makes_one_job(client, driver, shared_server, make_proxy, layer):
    weight, gram = client.upload(layer.weight), client.upload(layer.gram)
    arguments = {"weight": weight, "gram": gram, "method": "wanda", "request_id": f"one {weight}"}
    proxy = make_proxy(shared_server.address)
    through = driver.connect(proxy.address)
    proxy.arm("reset", 0, "down")  # the answer is lost
    names = {through.call("create_job", **arguments)["name"], client.call("create_job", **arguments)["name"]}
    assert len(names) == 1 and proxy.done == ["reset"]
    error = client.refuses("create_job", **{**arguments, "sparsity": 0.25})
    assert error.kind == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    through.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_under_jobs_and_watches(driver, restartable, layer, how):
    server = restartable("--drain-grace", "1s", "--fetch-grace", "0s", "--workers", "1")
    client = driver.connect(server.address)
    job = client.job(layer, **ENDLESS)
    watch = client.start("watch", name=job)
    wait_until(lambda: "RUNNING" in [event["state"] for event in watch.events], "it runs")
    weight, gram = client.upload(layer.weight), client.upload(layer.gram)
    create = None
    if how == "kill":
        server.kill()
    else:
        server.server.signal(15)
        wait_until(lambda: "draining" in server.server.log(), "it drains")
        create = client.start("create_job", weight=weight, gram=gram, method="wanda")
        wait_until(lambda: any(retry["reason"] == "DRAINING" for retry in client.retries), "refused")
        assert server.server.wait() == 0
    server.again()
    wait_until(lambda: states(watch.events)[-2:] == ["QUEUED", "RUNNING"]
               and watch.events[-1]["kind"] == "PROGRESS", "it runs again")
    client.call("cancel_job", name=job)
    end = watch.result()
    assert end["state"] == "CANCELLED" and end["mask"], "the best mask so far"
    check_order(watch.events)
    assert states(watch.events)[-3:] == ["QUEUED", "RUNNING", "CANCELLED"]
    assert end["attempts"] == 2 or how == "stop"
    if create:
        drained = [retry for retry in client.retries if retry["reason"] == "DRAINING"]
        assert all(retry["wait"] >= retry["retry_delay"] > 0 for retry in drained)
        assert client.call("watch", name=create.result()["name"])["state"] == "SUCCEEDED"
    client.close()


def test_all_of_it_in_one_call(client, layer, folder):
    inputs = {"weight_file": layer.weight.path, "activations_file": layer.activations.path,
              "shape": [24, 32], "file": folder / "mask", "method": "sparsefw", "iterations": 40,
              "sparsity": 0.5}
    end = client.call("prune", **inputs)
    assert end["state"] == "SUCCEEDED"
    mask = (folder / "mask").read_bytes()
    assert (kept(mask, 24, 32).sum(axis=1) == 16).all()
    gram = client.call("gram", **layer.activations.gram)["name"]
    job = client.call("create_job", weight=client.upload(layer.weight), gram=gram, method="sparsefw",
                      iterations=40, sparsity=0.5)["name"]
    made = client.call("watch", name=job)["mask"]
    assert client.read(made, folder / "read") == mask, "step by step it is the same mask"
    error = client.refuses("prune", **{**inputs, "sparsity": 2.0})
    assert error.code == "INVALID_ARGUMENT" and error.reason == "PATTERN_INVALID"

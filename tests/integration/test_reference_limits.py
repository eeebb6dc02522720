"""A job on the reference engine, whose swaps take minutes, can be interrupted at any time."""
import os
import signal
from pathlib import Path

import pytest

from support.layers import Layer
from support.processes import Cli, wait_until


def work(server):
    """Seconds of the processors that it has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def slow_layer(folder):
    return Layer(folder, d_out=2048, d_in=2048, seed=3)


def submit_until_it_swaps(cli, layer, *flags):
    """The name of a job that has reported its only iteration."""
    job = cli.run(*layer.submit("--device", "reference", "--iterations", "1", "--swaps", "--detach",
                                "--json", *flags, out=False)).expect(0).json()["job"]
    wait_until(lambda: (status(cli, job)["progress"] or {}).get("iteration") == 1, "the iteration is over")
    assert status(cli, job)["state"] == "RUNNING"
    return job


def status(cli, job):
    return cli.run("status", job, "--json").expect(0).json()


# Preparing the swaps of this layer alone is several times the work that comes before them.

def test_cancel_ends_the_swaps(start_server, slow_layer):
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    job = submit_until_it_swaps(cli, slow_layer)
    before = work(server)
    cli.run("cancel", job).expect(0)
    asked = work(server)  # it has swapped on while the client started
    wait_until(lambda: status(cli, job)["state"] == "CANCELLED", "job is cancelled")
    assert work(server) - asked < before


def test_drain_ends_the_swaps(start_server, slow_layer):
    server = start_server("--workers", "1", "--drain-grace", "0s")
    submit_until_it_swaps(Cli(server.address), slow_layer)
    before = work(server)
    server.signal(signal.SIGTERM)
    # What a process that has ended had used: of all children of this one since the last look.
    ended = os.times()
    assert server.wait() == 0, server.log()
    used = os.times()
    assert used.children_user + used.children_system - ended.children_user - ended.children_system < 2 * before

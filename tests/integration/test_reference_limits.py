"""A job on the reference engine, whose swaps take minutes, can be interrupted at any time."""
import signal

import pytest

from support.layers import Layer
from support.processes import Cli, wait_until

# Preparing the swaps of this layer alone takes several times as long as the test allows.
PROMPTLY = 5


@pytest.fixture
def slow_layer(folder):
    return Layer(folder, d_out=2048, d_in=2048, seed=3)


def submit_until_it_swaps(cli, layer, *flags):
    """The name of a job that has reported its only iteration."""
    job = cli.run(*layer.submit("--device", "reference", "--iterations", "1", "--swaps", "--detach",
                                "--json", *flags, out=False)).expect(0).json()["job"]
    wait_until(lambda: (status(cli, job)["progress"] or {}).get("iteration") == 1, 120,
               "the iteration is over")
    assert status(cli, job)["state"] == "RUNNING"
    return job


def status(cli, job):
    return cli.run("status", job, "--json").expect(0).json()


def test_cancel_ends_the_swaps(start_server, slow_layer):
    cli = Cli(start_server("--workers", "1").address)
    job = submit_until_it_swaps(cli, slow_layer)
    cli.run("cancel", job).expect(0)
    wait_until(lambda: status(cli, job)["state"] == "CANCELLED", PROMPTLY, "job is cancelled")


def test_drain_ends_the_swaps(start_server, slow_layer):
    server = start_server("--workers", "1", "--drain-grace", "1s")
    submit_until_it_swaps(Cli(server.address), slow_layer)
    server.signal(signal.SIGTERM)
    assert server.wait(1 + PROMPTLY) == 0, server.log()

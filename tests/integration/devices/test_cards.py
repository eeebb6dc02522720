"""Several emulated cards (tests/cuda_on_host): a server touches those that --device means and no
others, and one that is broken does not disable the rest."""
import pytest

from support.processes import BIN_DIR, Cli
from support.refusals import loopback, refuses

EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
# The first of the calls that name a card asks what it is; the third is the first use.
WHEN_ASKED, AT_FIRST_USE = 1, 3


def cards(count, **more):
    return {"SPARSEFW_CUDA_MODULE": str(EMULATED), "SPARSEFW_CUDA_ON_HOST_DEVICES": str(count),
            **more}


def broken(count, card, calls):
    return cards(count, SPARSEFW_CUDA_ON_HOST_FAULT=f"{card}:{calls}")


def names_of(server):
    info = Cli(server.address).run("info", "--json").expect(0).json()
    return [device["name"] for device in info["devices"]]


def run(server, layer, *flags):
    return Cli(server.address).run(*layer.submit("--iterations", "20", "--json", *flags))


@pytest.mark.parametrize("device, used", [
    ("cuda:1", [1]), ("cuda:2,0", [2, 0]), ("auto", [0, 1, 2]), ("cuda", [0, 1, 2]), ("cpu", []),
    ("reference", [])])
def test_a_context_is_made_on_the_cards_of_the_flag_alone(start_server, folder, layer, device,
                                                          used):
    contexts = folder / "contexts"
    contexts.touch()
    server = start_server("--device", device,
                          env=cards(3, SPARSEFW_CUDA_ON_HOST_CONTEXTS=str(contexts)))
    run(server, layer).expect(0)
    assert [int(line) for line in contexts.read_text().split()] == used
    assert names_of(server) == [*(f"cuda:{card}" for card in used), "cpu", "reference"]
    for card in {0, 1, 2} - set(used):
        run(server, layer, "--device", f"cuda:{card}").refused(
            3, "device must be one that the server was started with", f"got cuda:{card}")
    if not used:
        run(server, layer, "--device", "cuda").refused(3, "started with: cpu, reference", "got cuda")


@pytest.mark.parametrize("calls", [WHEN_ASKED, AT_FIRST_USE])
@pytest.mark.parametrize("card", [0, 1])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_broken_card_is_named_and_the_others_work(start_server, layer, device, card, calls):
    server = start_server("--device", device, env=broken(3, card, calls))
    rest = [f"cuda:{other}" for other in range(3) if other != card]
    assert names_of(server) == [*rest, "cpu", "reference"] and server.device == rest[0]
    (line,) = [line for line in server.log().splitlines() if "device_unavailable" in line]
    assert f"device=cuda:{card}" in line and "an illegal memory access" in line
    assert run(server, layer).expect(0).json()["device"] in rest
    run(server, layer, "--device", f"cuda:{card}").refused(3, f"got cuda:{card}")


@pytest.mark.parametrize("calls", [WHEN_ASKED, AT_FIRST_USE])
def test_a_broken_card_that_a_list_names_is_refused_with_its_error(start_server, folder, layer,
                                                                   calls):
    env = broken(2, 1, calls)
    refuses(1, ["cuda:1", "cannot be used", "an illegal memory access"],
            *loopback(folder, "--device", "cuda:0,1"), env=env)
    server = start_server("--device", "cuda:0", env=env)
    assert run(server, layer).expect(0).json()["device"] == "cuda:0"


@pytest.mark.parametrize("calls", [WHEN_ASKED, AT_FIRST_USE])
def test_where_every_card_is_broken_auto_says_why_it_is_the_cpu(start_server, folder, calls):
    env = broken(1, 0, calls)
    refuses(1, ["cuda:0: ", "an illegal memory access"], *loopback(folder, "--device", "cuda"),
            env=env)
    server = start_server("--device", "auto", env=env)
    assert server.device == "cpu"
    assert "no CUDA device (cuda:0: " in server.log() and "so cpu" in server.log()


def test_what_is_said_of_a_lost_card_asks_no_driver(start_server, layer):
    server = start_server("--device", "auto", env=broken(1, 0, 100))
    before = Cli(server.address).run("info", "--json").expect(0).json()["devices"][0]
    assert not before["lost"] and before["memory_free_bytes"] > 0
    assert Cli(server.address).run(*layer.submit("--iterations", "200")).code != 0
    after = Cli(server.address).run("info", "--json").expect(0).json()["devices"][0]
    assert after["lost"] and after["memory_free_bytes"] == before["memory_free_bytes"]

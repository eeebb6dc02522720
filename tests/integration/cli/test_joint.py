"""The joint search, ALPS and presets through the command line, on real layers."""
import re
import signal
import time

import numpy as np
import pytest

from support import reference, safetensors
from support.layers import Layer
from support.processes import Cli, finish, in_time, wait_until
from support.real_layers import GRAM_LAYERS, PATTERNS, RealLayer, loss_of_weights


@pytest.fixture(scope="module", params=GRAM_LAYERS[:1], ids=lambda path: path.stem)
def real_layer(request):
    return RealLayer(request.param)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_mask_and_weights_found_together(cli, real_layer, folder, pattern):
    solved, _ = real_layer.run(cli, folder, pattern, "--method", "wanda", "--reconstruct")
    weights_file = folder / "joint.safetensors"
    result, mask = real_layer.run(cli, folder, pattern, "--method", "wanda", "--joint",
                                  "--out-weights", weights_file)
    reference.check_counts(mask, pattern, 0.6)
    weights = safetensors.read(weights_file)[0][real_layer.weight_name]
    assert weights.dtype == real_layer.weight.dtype and np.all(weights[~mask] == 0)
    losses, joint = result["losses"], result["joint"]
    assert losses["reconstructed"] == pytest.approx(loss_of_weights(real_layer, weights), rel=1e-5)
    assert losses["final"] == pytest.approx(
        reference.loss(real_layer.weight, real_layer.gram, mask), rel=1e-6)
    assert joint["start_loss"] == pytest.approx(solved["losses"]["reconstructed"], rel=1e-9)
    assert joint["reduction"] == pytest.approx(1 - losses["reconstructed"] / joint["start_loss"])
    assert joint["reduction"] > 0.2 and joint["exchanges"] > 1000 and joint["converged"]
    assert result["candidate"] == "JOINT" and solved["joint"] is None
    assert result["relative_reduction"] == pytest.approx(
        1 - losses["reconstructed"] / losses["warm_start"])


def test_the_best_preset_is_below_all_others(cli, real_layer, folder):
    def loss(*flags):
        return real_layer.run(cli, folder, "per-row", *flags)[0]["losses"]["reconstructed"]

    # On the calibration inputs themselves.
    best = loss("--preset", "best", "--shrinkage", "0")
    alps = loss("--method", "alps")
    assert best < alps < loss("--method", "sparsegpt")
    assert best < loss("--method", "wanda", "--joint") < alps
    assert best < loss("--preset", "fast", "--reconstruct")
    assert best < loss("--preset", "balanced", "--reconstruct", "--shrinkage", "0")
    shrunk = real_layer.run(cli, folder, "per-row", "--preset", "best")[0]
    shrinkage = ["--shrinkage", repr(shrunk["shrinkage"])]
    assert shrunk["losses"]["reconstructed"] == loss("--method", "alps", "--joint", *shrinkage)
    assert shrunk["losses"]["reconstructed"] < loss("--method", "alps", *shrinkage)


def test_nothing_named_is_the_preset_balanced_and_is_said(cli, layer):
    def run(*flags):
        done = cli.run(*layer.submit(*flags, "--json")).expect(0)
        return done.json(), layer.mask(), done.err

    default, mask, err = run()
    assert default["preset"] == "balanced"
    assert "preset balanced, for no method and no option of one was given; --preset paper has" in err
    asked, same, err = run("--preset", "balanced")
    assert (mask == same).all() and default["losses"] == asked["losses"] and "for no method" not in err
    assert re.search(r"(?m)^preset +balanced$", cli.run(*layer.submit("-q")).expect(0).out)
    paper, paper_mask, _ = run("--preset", "paper")
    for flags in (["--method", "sparsefw"], ["--alpha", "0.9"]):
        named, same, err = run(*flags)
        assert (paper_mask == same).all() and named["losses"] == paper["losses"]
        assert named["preset"] is None and err.count("preset") == 0


def test_presets_are_their_settings_and_flags_win(cli, layer):
    def spec(*flags):
        result = cli.run(*layer.submit("--json", *flags)).expect(0).json()
        return result, layer.mask()

    balanced, mask = spec("--preset", "balanced")
    plain, same = spec("--method", "sparsefw", "--alpha", "0.5", "--step-rule", "line-search",
                       "--iterations", "200", "--swaps", "--shrinkage", repr(balanced["shrinkage"]))
    assert np.array_equal(mask, same) and balanced["losses"] == plain["losses"]
    assert spec("--preset", "balanced", "--shrinkage", "0")[0]["losses"]["unshrunk"] is None
    paper, mask = spec("--preset", "paper")
    plain, same = spec("--method", "sparsefw")
    assert np.array_equal(mask, same) and paper["losses"] == plain["losses"]
    fast, mask = spec("--preset", "fast")
    plain, same = spec("--method", "wanda", "--alpha", "0.5", "--swaps")
    assert fast["method"] == "wanda" and fast["swaps"] > 0 and np.array_equal(mask, same)
    assert spec("--preset", "fast", "--method", "ria")[0]["method"] == "ria"
    assert spec("--preset", "best", "--method", "wanda")[0]["joint"]["exchanges"] > 0
    assert spec("--preset", "best", "--reconstruct")[0]["joint"] is None


@pytest.mark.parametrize("flags, words", [
    (["--joint", "--reconstruct"], ["joint", "reconstruct"]),
    (["--joint", "--joint-damping", "2"], ["joint_damping", "[0, 1]", "2"]),
    (["--joint-excluded", "1"], ["joint_excluded", "[0, 1)"]),
    (["--preset", "slow"], ["--preset", "paper", "slow"]),
    (["--method", "alps", "--swaps"], ["swaps", "ALPS"]),
    (["--sweep", "joint=maybe"], ["on or off", "maybe"]),
    (["--sweep", "joint=on", "--sweep", "reconstruct=on"], ["points[0]", "reconstruct", "joint"]),
])
def test_bad_settings_are_refused_in_one_sentence(cli, layer, flags, words):
    done = cli.run(*layer.submit(*flags))
    assert done.code in (2, 3)
    done.refused(done.code, *words)


def test_a_sweep_says_both_losses_of_every_point(cli, layer):
    result = cli.run(*layer.submit("--json", "--sweep", "method=wanda,alps",
                                   "--sweep", "sparsity=0.5,0.7", "--sweep",
                                   "joint=off,on")).expect(0).json()
    assert len(result["sweep"]) == 8
    for point in result["sweep"]:
        assert point["error"] is None
        assert point["loss"] == point["result"]["losses"]["final"]
        assert point["loss_with_new_weights"] <= point["loss"]
        if point["joint"] or point["method"] == "alps":
            assert point["loss_with_new_weights"] == point["result"]["losses"]["reconstructed"]
        else:
            assert point["result"]["losses"]["reconstructed"] is None
    alone = cli.run(*layer.submit("--json", "--method", "wanda", "--sparsity", "0.5",
                                  "--reconstruct")).expect(0).json()
    assert result["sweep"][0]["loss_with_new_weights"] == alone["losses"]["reconstructed"]


@pytest.fixture
def wide_layer(folder):
    """The search of one row takes a moment, of all of them many seconds."""
    return Layer(folder, d_out=600, d_in=1024, seed=12, tokens=3000)


SEARCH = ("--method", "magnitude", "--joint", "--alpha", "0", "--joint-excluded", "0")


def searching_job(cli, seconds):
    """The running job, once it has searched for so long: its report says that it begins."""
    def mine():
        return [entry["job"] for entry in cli.run("list", "--json").expect(0).json()["jobs"]
                if entry["state"] == "RUNNING"]
    (job,) = wait_until(mine, "runs")
    wait_until(lambda: cli.run("status", job, "--json").expect(0).json()["progress"], "searches")
    time.sleep(seconds)
    return job


def test_cancel_and_deadline_return_the_best_so_far(cli, wide_layer, folder):
    weights_file = folder / "new.safetensors"
    process = cli.start(*wide_layer.submit("--json", *SEARCH, "--out-weights", weights_file))
    job = searching_job(cli, 1)
    cli.run("cancel", job).expect(0)
    result = finish(process).expect(0).json()
    assert (result["state"], result["stop_reason"]) == ("CANCELLED", "CANCELLED")
    reference.check_counts(wide_layer.mask(), "per-row", 0.6)
    weights = next(iter(safetensors.read(weights_file)[0].values()))
    assert np.all(weights[~wide_layer.mask()] == 0)
    losses = result["losses"]
    left = wide_layer.weight.astype(np.float64) - weights
    actual = float(np.sum((left @ wide_layer.gram) * left))
    assert losses["reconstructed"] >= actual * (1 - 1e-3)
    assert losses["reconstructed"] <= losses["warm_start"]

    def begun(seconds):
        done = cli.run(*wide_layer.submit("--json", *SEARCH, "--deadline", f"{seconds}s"))
        return done.code == 0 and done.json()["joint"] and done.json()

    result = in_time(begun, 3)
    assert (result["state"], result["stop_reason"]) == ("SUCCEEDED", "DEADLINE")
    assert not result["joint"]["converged"]
    assert result["losses"]["reconstructed"] <= result["joint"]["start_loss"]


def test_a_killed_server_ends_it_with_the_same_result(start_server, folder):
    layer = Layer(folder, d_out=200, d_in=512, seed=13, tokens=2000)
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    flags = ("--json", "--method", "wanda", "--joint", "--alpha", "0")
    whole = cli.run(*layer.submit(*flags)).expect(0).json()
    mask = layer.mask()
    process = cli.start(*layer.submit(*flags))
    searching_job(cli, 0.2)
    server.signal(signal.SIGKILL)
    server.wait()
    start_server("--listen", server.address, "--state-dir", server.state_dir, "--workers", "1")
    again = finish(process).expect(0).json()
    assert np.array_equal(layer.mask(), mask)
    assert again["losses"] == whole["losses"] and again["joint"] == whole["joint"]

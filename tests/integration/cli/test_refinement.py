"""Swaps, reconstruction, SparseGPT and sweeps through the command line, on real layers."""
import json

import numpy as np
import pytest

from support import reference, safetensors
from support.real_layers import GRAM_LAYERS, PATTERNS, RealLayer, check_losses, loss_of_weights


@pytest.fixture(scope="module", params=GRAM_LAYERS, ids=lambda path: path.stem)
def real_layer(request):
    return RealLayer(request.param)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_swaps_lower_the_loss_of_every_method(cli, real_layer, folder, pattern):
    for flags in (["--method", "wanda", "--alpha", "0.5"],
                  ["--method", "sparsefw", "--alpha", "0.5", "--step-rule", "line-search",
                   "--iterations", "40"]):
        plain, _ = real_layer.run(cli, folder, pattern, *flags)
        swapped, mask = real_layer.run(cli, folder, pattern, *flags, "--swaps")
        check_losses(real_layer, swapped, mask, pattern)
        assert swapped["losses"]["final"] < plain["losses"]["final"]
        assert swapped["swaps"] > 0 and swapped["candidate"] == "REFINED" and plain["swaps"] == 0
        assert swapped["losses"]["lower_bound"] <= swapped["losses"]["final"]


def test_free_swaps_reach_further_than_those_that_keep_the_fixed_set(cli, real_layer, folder):
    flags = ["--method", "wanda", "--alpha", "0.9", "--swaps"]
    kept, _ = real_layer.run(cli, folder, "per-row", *flags)
    free, mask = real_layer.run(cli, folder, "per-row", *flags, "--no-keep-fixed")
    check_losses(real_layer, free, mask, "per-row")
    assert free["losses"]["final"] < kept["losses"]["final"]


@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsefw"])
def test_reconstruction_returns_better_weights_for_the_same_mask(cli, real_layer, folder, method):
    weights_file = folder / "updated.safetensors"
    flags = ["--method", method] + (["--iterations", "20"] if method == "sparsefw" else [])
    plain, mask = real_layer.run(cli, folder, "2:4", *flags)
    result, same = real_layer.run(cli, folder, "2:4", *flags, "--reconstruct", "--out-weights",
                                  weights_file)
    assert np.array_equal(mask, same)
    weights = safetensors.read(weights_file)[0][real_layer.weight_name]
    assert weights.dtype == real_layer.weight.dtype and np.all(weights[~mask] == 0)
    losses = result["losses"]
    assert losses["final"] == pytest.approx(plain["losses"]["final"], rel=1e-9)
    assert losses["reconstructed"] < losses["final"]
    assert losses["reconstructed"] == pytest.approx(loss_of_weights(real_layer, weights), rel=1e-5)
    assert plain["losses"]["reconstructed"] is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_sparsegpt_returns_mask_and_weights(cli, real_layer, folder, pattern):
    weights_file = folder / "updated.safetensors"
    result, mask = real_layer.run(cli, folder, pattern, "--method", "sparsegpt", "--damping", "0.02",
                                  "--out-weights", weights_file)
    reference.check_counts(mask, pattern, 0.6)
    weights = safetensors.read(weights_file)[0][real_layer.weight_name]
    assert np.all(weights[~mask] == 0) and result["damping"] == 0.02
    losses = result["losses"]
    assert losses["reconstructed"] == pytest.approx(loss_of_weights(real_layer, weights), rel=1e-5)
    wanda, _ = real_layer.run(cli, folder, pattern, "--method", "wanda")
    assert losses["reconstructed"] < wanda["losses"]["final"] == pytest.approx(
        losses["warm_start"], rel=1e-9)


SWEEP = ["--method", "sparsefw", "--iterations", "30", "--sweep", "alpha=0,0.5,0.9"]


def test_a_sweep_is_its_points_one_by_one(cli, layer):
    done = cli.run(*layer.submit(*SWEEP, "--sweep", "swaps=off,on", "--keep-all", "--json")).expect(0)
    result = done.json()
    assert [(p["alpha"], p["swaps"]) for p in result["sweep"]] == [
        (0, False), (0, True), (0.5, False), (0.5, True), (0.9, False), (0.9, True)]
    losses = [point["result"]["losses"]["final"] for point in result["sweep"]]
    best = result["best_point"]
    assert losses[best] == min(losses) == result["losses"]["final"]
    tensors, metadata = safetensors.read(layer.mask_file)
    assert set(tensors) == {"mask"} | {f"mask.{i}" for i in range(6)}
    assert np.array_equal(tensors["mask"], tensors[f"mask.{best}"])
    for index, point in enumerate(result["sweep"]):
        mask = tensors[f"mask.{index}"]
        reference.check_counts(mask, "per-row", 0.6)
        assert losses[index] == pytest.approx(
            reference.loss(layer.weight, layer.gram, mask), rel=1e-6)
        alone = cli.run(*layer.submit("--json", "--method", "sparsefw", "--iterations", "30",
                                      "--alpha", str(point["alpha"]),
                                      *(["--swaps"] if point["swaps"] else []))).expect(0).json()
        assert alone["losses"] == point["result"]["losses"]
        assert np.array_equal(safetensors.read(layer.mask_file)[0]["mask"], mask)


def test_a_sweep_over_methods_patterns_and_sparsities(cli, layer):
    result = cli.run("submit", *layer.submit()[1:], "--json", "--iterations", "20",
                     "--sweep", "method=wanda,ria,sparsefw,sparsegpt",
                     "--sweep", "sparsity=0.5,0.7").expect(0).json()
    assert len(result["sweep"]) == 8 and all(p["error"] is None for p in result["sweep"])
    assert [p["sparsity"] for p in result["sweep"]] == [0.5, 0.7] * 4
    # The job's own numbers are of the first pattern.
    assert result["sweep"][result["best_point"]]["sparsity"] == 0.5
    assert result["kept"] == 24 * 16 and list(safetensors.read(layer.mask_file)[0]) == ["mask"]


def test_a_sweep_prints_a_table(cli, layer):
    done = cli.run(*layer.submit(*SWEEP)).expect(0)
    rows = [line for line in done.out.splitlines() if line.lstrip(" *")[:1].isdigit()
            and "sparsefw" in line]
    assert len(rows) == 3 and sum(row.startswith("*") for row in rows) == 1
    assert "alpha" in done.out and "reduction" in done.out


def test_a_point_that_fails_does_not_end_the_others(cli, layer, folder):
    # No entry is too large, but the matrix is indefinite: nothing that SparseGPT could factorise.
    broken = 1.5 * np.eye(len(layer.gram)) - 0.5
    gram = safetensors.write(folder / "broken.safetensors", {"gram": broken.astype("<f4")})
    result = cli.run("submit", "--weights", layer.weights_file, "--gram", gram, "--pattern", "per-row",
                     "--sparsity", "0.5", "--out", folder / "m.safetensors", "--json",
                     "--sweep", "method=sparsegpt,magnitude").expect(0).json()
    assert "positive definite" in result["sweep"][0]["error"]
    assert result["sweep"][1]["error"] is None and result["best_point"] == 1


@pytest.mark.parametrize("flags, words", [
    (["--sweep", "alpha=2"], ["alpha", "[0, 1]", "2"]),
    (["--sweep", "beta=1"], ["alpha", "beta"]),
    (["--sweep", "alpha"], ["KEY=VALUE"]),
    (["--sweep", "alpha=0", "--sweep", "alpha=1"], ["alpha", "twice"]),
    (["--sweep", "swaps=yes"], ["on or off", "yes"]),
    (["--sweep", "method=obs"], ["method", "obs"]),
    (["--keep-all"], ["--keep-all", "--sweep"]),
    (["--damping", "3"], ["damping", "3"]),
    (["--block-size", "0"], ["block_size", "0"]),
    (["--method", "sparsegpt", "--swaps"], ["swaps", "SPARSEGPT"]),
])
def test_bad_settings_are_refused_in_one_sentence(cli, layer, flags, words):
    done = cli.run(*layer.submit(*flags))
    assert done.code in (2, 3)
    done.refused(done.code, *words)


def test_status_of_a_sweep_names_the_best_point(cli, layer):
    job = cli.run(*layer.submit("--detach", "--json", *SWEEP, out=False)).expect(0).json()["job"]
    watched = cli.run("watch", job, "--json").expect(0).json()
    status = json.loads(cli.run("status", job, "--json").expect(0).out)
    assert status["best_point"] == watched["best_point"] and len(status["sweep"]) == 3


def test_results_say_which_iterations_were_screened(cli, real_layer, folder):
    flags = ["--method", "sparsefw", "--iterations", "150"]
    result, mask = real_layer.run(cli, folder, "per-row", *flags)
    check_losses(real_layer, result, mask, "per-row")
    screening = result["screening"]
    assert screening["epochs"] >= 1 and 0 < screening["iterations"] <= 100
    assert 0 < screening["active_share"] < 0.6
    early, _ = real_layer.run(cli, folder, "per-row", "--method", "sparsefw", "--iterations", "20")
    assert early["screening"] is None

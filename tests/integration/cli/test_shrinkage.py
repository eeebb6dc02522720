"""--shrinkage through the command line, on a real layer: what is computed, printed and refused."""
import numpy as np
import pytest

from support import reference, safetensors
from support.real_layers import GRAM_LAYERS, RealLayer, loss_of_weights


@pytest.fixture(scope="module")
def real_layer():
    return RealLayer(GRAM_LAYERS[0])


def shrunk(gram, share):
    return (1 - share) * gram + share * np.diag(np.diag(gram))


def loss_share(layer, gram, mask):
    return (reference.loss(layer.weight, gram, mask)
            / reference.loss(layer.weight, gram, np.zeros_like(mask)))


@pytest.mark.parametrize("pattern", ["per-row", "unstructured", "2:4"])
def test_the_losses_are_of_the_shrunk_gram_and_of_the_given_one(cli, real_layer, folder, pattern):
    result, mask = real_layer.run(cli, folder, pattern, "--iterations", "100", "--swaps",
                                  "--shrinkage", "0.2")
    plain, plain_mask = real_layer.run(cli, folder, pattern, "--iterations", "100", "--swaps")
    reference.check_counts(mask, pattern, 0.6)
    gram = shrunk(real_layer.gram, 0.2)
    losses = result["losses"]
    assert losses["final"] == pytest.approx(
        reference.loss(real_layer.weight, gram, mask), rel=1e-6)
    assert 0 < losses["lower_bound"] <= losses["final"] < losses["warm_start"]
    unshrunk = losses["unshrunk"]
    for name, kept in (("result", mask), ("full", np.zeros_like(mask))):
        assert unshrunk[name] == pytest.approx(
            reference.loss(real_layer.weight, real_layer.gram, kept), rel=1e-5)
    # The loss of the same mask, Wanda's, since the diagonal stays.
    assert unshrunk["warm_start"] == pytest.approx(plain["losses"]["warm_start"], rel=1e-5)
    assert plain["losses"]["unshrunk"] is None
    # Each is the better one of what it was asked for.
    assert loss_share(real_layer, gram, mask) < loss_share(real_layer, gram, plain_mask)
    assert (loss_share(real_layer, real_layer.gram, plain_mask)
            < loss_share(real_layer, real_layer.gram, mask))


def test_new_weights_are_those_of_the_shrunk_gram(cli, real_layer, folder):
    file = folder / "weights.safetensors"
    result, mask = real_layer.run(cli, folder, "per-row", "--method", "wanda", "--reconstruct",
                                  "--shrinkage", "0.2", "--out-weights", file)
    weights = safetensors.read(file)[0][real_layer.weight_name]
    assert result["losses"]["unshrunk"]["result"] == pytest.approx(
        loss_of_weights(real_layer, weights), rel=1e-5)
    gram = shrunk(real_layer.gram, 0.2)
    for row in range(0, len(weights), 97):
        kept = np.flatnonzero(mask[row])
        solved = np.linalg.solve(gram[np.ix_(kept, kept)],
                                 (gram @ real_layer.weight[row].astype(np.float64))[kept])
        assert weights[row][kept] == pytest.approx(solved, rel=1e-3, abs=1e-4 * abs(solved).max())


def test_it_is_shown_to_people(cli, layer):
    def lines(*flags):
        out = cli.run(*layer.submit(*flags)).expect(0).out
        return {line.split()[0]: line for line in out.splitlines() if line.strip()}

    shown = lines("--shrinkage", "0.125")
    result = cli.run(*layer.submit("--shrinkage", "0.125", "--json")).expect(0).json()
    assert result["shrinkage"] == 0.125
    unshrunk = result["losses"]["unshrunk"]
    assert f"{100 * unshrunk['result'] / unshrunk['full']:.3f} %" in shown["loss"]
    assert f"{100 * (1 - unshrunk['result'] / unshrunk['warm_start']):.3f} %" in shown["reduction"]
    assert "(G shrunk)" in shown["certificate"]
    assert result["loss"] == unshrunk["result"] / unshrunk["full"]
    assert shown["shrinkage"].split()[3] == "0.125:"
    assert "shrinkage" not in lines("--preset", "paper")
    table = cli.run(*layer.submit("--shrinkage", "0.125", "--sweep", "alpha=0,0.5")).expect(0).out
    assert table.rstrip().splitlines()[-1].endswith("shrinkage 0.125")


@pytest.mark.parametrize("value", ["1", "-0.1", "nan"])
def test_bad_values_are_refused_in_one_sentence(cli, layer, value):
    cli.run(*layer.submit("--shrinkage", value)).refused(2, "shrinkage must be in [0, 1)", value)

"""What results, tables and errors say to people."""

import re
import socket
import subprocess
import sys

import numpy as np
import pytest

import sparsefw
from layers import Layer
from sparsefw import Options
from support.certificates import Authority
from support.processes import in_time


@pytest.fixture
def layer():
    return Layer()


def lines(result):
    return {line.split()[0]: line for line in str(result).splitlines()}


def test_a_result_reads_as_in_the_other_clients(client, layer):
    result = client.prune(layer.weight, layer.gram, sparsity=0.6, method="sparsefw", iterations=50)
    text = str(result).splitlines()
    assert [line.split()[0] for line in text] == ["loss", "reduction", "certificate", "sparsity", f"{result.job},"]
    assert text[0] == (f"loss         {100 * result.loss:8.3f} %  |WX - (M*W)X|^2 / |WX|^2; output energy kept: "
                       f"{100 * (1 - result.loss):.3f} %")
    shown = {line.split()[0]: float(line.split()[1]) for line in text[:4]}
    assert shown["reduction"] == pytest.approx(100 * result.relative_reduction, abs=6e-4)
    assert shown["certificate"] == pytest.approx(100 * result.certificate, abs=6e-4)
    assert repr(result) == (f"<sparsefw.Result of {result.job}, SUCCEEDED, [24, 32]: loss {100 * result.loss:.3f} %, "
                            f"sparsity {100 * result.sparsity:.3f} %, certificate {100 * result.certificate:.3f} %>")
    assert text[3].endswith(f"{24 * 32 - result.kept} of 768 weights removed; {result.kept} kept")


def test_new_weights_and_a_shrinkage_are_said(client, layer):
    one_shot = lines(client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda"))
    assert "certificate" not in one_shot and "reduction" not in one_shot
    updated = client.prune(layer.weight, layer.gram, sparsity=0.6, method="alps", shrinkage=0.1)
    unshrunk = updated.losses.unshrunk
    assert "with the updated weights W'" in lines(updated)["loss"]
    assert f"{100 * (1 - unshrunk.result / unshrunk.warm_start):.3f} %" in lines(updated)["reduction"]
    shrunk = client.prune(layer.weight, layer.gram, sparsity=0.6, method="sparsefw", iterations=50, shrinkage=0.1)
    assert lines(shrunk)["certificate"].endswith("% (G shrunk)")


def test_a_table_has_the_loss_with_new_weights(client, layer):
    table = client.sweep(layer.weight, layer.gram, sparsity=0.6, iterations=50, method="sparsefw", alpha=[0, 0.9],
                         reconstruct=[False, True])
    assert "new_weights_loss" in str(table).splitlines()[0]
    for row in table.rows():
        assert row["new_weights_loss"] < row["mask_loss"]
        if row["reconstruct"]:
            assert row["new_weights_loss"] == pytest.approx(row["loss"], rel=1e-6)


def test_nothing_named_is_the_preset_balanced_and_is_said(client, layer):
    default = client.prune(layer.weight, layer.gram, sparsity=0.6)
    balanced = client.prune(layer.weight, layer.gram, sparsity=0.6, preset="balanced")
    assert default.losses == balanced.losses and np.array_equal(default.mask, balanced.mask)
    assert default.preset == "balanced"
    assert f"{default.job}, SUCCEEDED: preset balanced, " in str(default)
    paper = client.prune(layer.weight, layer.gram, sparsity=0.6, preset="paper")
    for options in ({"method": "sparsefw"}, {"iterations": 2000}):
        named = client.prune(layer.weight, layer.gram, sparsity=0.6, **options)
        assert named.losses == paper.losses and named.preset == "" and "preset" not in str(named)
    # What is given beside a preset wins, and is named.
    mixed = client.prune(layer.weight, layer.gram, sparsity=0.6, preset="fast", method="ria", ria_exponent=1)
    assert (mixed.preset, mixed.preset_overrides) == ("fast", ("method", "ria_exponent"))
    assert "preset fast (overridden by: method, ria_exponent), " in str(mixed)
    assert default.preset_overrides == balanced.preset_overrides == ()
    # A sweep that varies no option of a method: balanced at every sparsity.
    table = client.sweep(layer.weight, layer.gram, sparsity=[0.5, 0.6])
    assert {row["alpha"] for row in table.rows()} == {0.5} and table.best.preset == "balanced"
    assert client.sweep(layer.weight, layer.gram, sparsity=0.6, alpha=[0.9]).best.losses == paper.losses


def test_what_was_not_asked_for_is_named(client, layer):
    result = client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda")
    with pytest.raises(sparsefw.FailedPrecondition, match="return_weight=True"):
        _ = result.weight


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sparsefw.torch", "PyTorch is not installed: pip install 'sparsefw[hf]'"),
        ("import sparsefw.hf", "torch is not installed: pip install 'sparsefw[hf]'"),
        ("import sparsefw.llmcompressor", "llm-compressor is not installed: pip install 'sparsefw[llmcompressor]'"),
        ("from sparsefw.sweep_results import SweepResult; SweepResult('jobs/1', [], 0, None).to_pandas()",
         "pandas is not installed: pip install pandas"),
    ],
)
def test_packages_that_are_missing_are_named(code, words):
    # A None in sys.modules is how Python itself says that a module is not there.
    hidden = "import sys; sys.modules.update(torch=None, pandas=None, llmcompressor=None); "
    done = subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, check=False)
    assert f"ModuleNotFoundError: {words}" in done.stderr


def test_why_no_server_could_be_reached(start_server, folder):
    def refused(address, words, **arguments):
        def attempt(seconds):
            with pytest.raises(sparsefw.Unavailable) as error:
                sparsefw.connect(address, options=Options(connect_timeout=seconds), **arguments)
            return re.search(words, str(error.value))

        # A handshake of TLS takes as long as this machine is busy.
        in_time(attempt, 1)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    refused(address, r': Connection refused; is a server .* server="auto"')
    authority = Authority(folder)
    pair = authority.server()
    secret = start_server("--tls-cert", pair.certificate, "--tls-key", pair.key)
    refused(secret.address, "Socket closed; a server with TLS needs tls_ca")
    other = Authority(folder, "other")
    refused(secret.address, "has not signed the server's certificate", tls_ca=other.certificate)
    refused(start_server().address, "a server without TLS takes no tls_ca", tls_ca=authority.certificate)


def test_a_pattern_of_groups_takes_its_own_sparsity(client, layer):
    result = client.prune(layer.weight, layer.gram, pattern="2:4", sparsity=0.5, method="wanda")
    assert result.sparsity == 0.5
    assert (result.mask.reshape(24, 8, 4).sum(axis=2) == 2).all()
    assert np.array_equal(result.mask, client.prune(layer.weight, layer.gram, pattern="2:4", method="wanda").mask)

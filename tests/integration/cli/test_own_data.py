"""Files of one's own: formats, batches, dtypes, and what is said of those that cannot be meant."""
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support import reference, safetensors


def npy(path, array):
    np.save(path, array)
    return path


def submit(layer, *flags):
    return ["submit", "--weights", layer.weights_file, "--method", "wanda", "--pattern", "2:4", "--out",
            layer.mask_file, "--overwrite", *flags]


def loss_of(cli, layer, *flags):
    return cli.run(*submit(layer, "--json", *flags)).expect(0).json()["losses"]["final"]


def test_npy_files_of_every_input(cli, layer, folder):
    weights = npy(folder / "w.npy", layer.weight.astype("<f8"))
    gram = npy(folder / "g.npy", layer.gram)
    pruned = folder / "pruned.safetensors"
    cli.run("submit", "--weights", weights, "--gram", gram, "--method", "wanda", "--pattern", "2:4", "--out",
            layer.mask_file, "--out-weights", pruned).expect(0)
    from_npy = layer.mask()
    tensors, _ = safetensors.read(pruned)
    np.testing.assert_array_equal(tensors["weight"], np.where(from_npy, layer.weight, 0))
    cli.run(*submit(layer, "--gram", layer.gram_file)).expect(0)
    np.testing.assert_array_equal(from_npy, layer.mask())


@pytest.mark.parametrize("command", ["submit", "gram"])
def test_activations_of_several_files_ranks_and_dtypes(cli, layer, folder, command):
    first = npy(folder / "a.npy", layer.activations[:80].reshape(4, 20, -1))
    second = npy(folder / "b.npy", layer.activations[80:81].astype("<f8"))
    third = safetensors.write(folder / "c.safetensors", {"x": layer.activations[81:], "y": layer.weight})
    flags = ["--activations", first, second, "--activations", f"{third}:x"]
    inputs = layer.activations.astype(np.float64)
    gram = inputs.T @ inputs
    if command == "submit":
        assert loss_of(cli, layer, *flags) == pytest.approx(
            reference.loss(layer.weight, gram, layer.mask()), rel=1e-5)
        return
    out = folder / "gram.safetensors"
    made = cli.run("gram", *flags, "--out", out, "--dtype", "F64", "--json").expect(0).json()
    assert made["token_count"] == 200
    np.testing.assert_allclose(safetensors.read(out)[0]["gram"], gram, rtol=1e-5,
                               atol=1e-5 * np.abs(gram).max())


def test_an_npz_archive_is_refused_with_the_line_that_converts_it(cli, layer, folder):
    archive = folder / "it's all.npz"
    np.savez(archive, x=layer.activations)
    done = cli.run(*submit(layer, "--activations", archive)).refused(2, str(archive), ".npz archive")
    line = done.err.split("convert it: ")[1]
    mine = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], check=True, env=mine)
    cli.run(*submit(layer, "--activations", folder / "it's all.npy")).expect(0)


def test_a_file_of_torch_save_is_refused_with_the_line_that_converts_it(cli, layer, folder):
    # What torch.save writes begins so; the line is run where PyTorch is, in tests/client/python/hf.
    path = folder / "x.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", io.BytesIO(b"\x80\x02.").getvalue())
    done = cli.run("gram", "--activations", path, "--out", folder / "g").refused(2, "torch.save")
    assert "weights_only=True" in done.err and str(folder / "x.safetensors") in done.err


def test_a_transposed_x_and_a_square_of_tokens_are_named(cli, layer, folder):
    turned = npy(folder / "t.npy", np.ascontiguousarray(layer.activations.T))
    cli.run(*submit(layer, "--activations", turned)).refused(2, "[32, 200]", "looks transposed")
    tokens = npy(folder / "tt.npy", layer.activations @ layer.activations.T)
    cli.run(*submit(layer, "--gram", tokens)).refused(2, "[200, 200]", "x.T @ x, not x @ x.T")
    cli.run(*submit(layer, "--gram", layer.activations_file)).refused(2, "[200, 32]", "--activations")
    square = npy(folder / "s.npy", layer.activations[:32])
    done = cli.run(*submit(layer, "--activations", square)).expect(0)
    assert "warning: " in done.err and "is square" in done.err


def test_fewer_tokens_than_inputs_is_a_warning_with_what_to_do(cli, layer, folder):
    few = npy(folder / "few.npy", layer.activations[:4])
    out = folder / "gram.safetensors"
    for done in (cli.run(*submit(layer, "--activations", few)).expect(0),
                 cli.run("gram", "--activations", few, "--out", out, "--quiet").expect(0),
                 cli.run(*submit(layer, "--gram", out)).expect(0)):
        assert "4 tokens are fewer than the 32 inputs" in done.err and "--shrinkage" in done.err
    enough = cli.run(*submit(layer, "--activations", layer.activations_file)).expect(0)
    assert "warning" not in enough.err
    # The file says 4 tokens, and holds the sum over 200.
    safetensors.write(folder / "other.safetensors", {"gram": layer.gram}, {"token_count": "4"})
    done = cli.run(*submit(layer, "--gram", folder / "other.safetensors")).expect(0)
    assert "the rank is at least" in done.err


@pytest.mark.parametrize("flag", ["--activations", "--gram"])
def test_a_pipe_is_refused_and_not_waited_for(cli, layer, folder, flag):
    os.mkfifo(folder / "pipe")
    cli.run(*submit(layer, flag, folder / "pipe")).refused(2, "must be a regular file")

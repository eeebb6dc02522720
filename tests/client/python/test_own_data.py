"""Arrays and files of one's own: formats, batches, dtypes, and what is said of those that cannot be meant."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from layers import Layer
from safetensors.numpy import load_file, save_file

import sparsefw
from sparsefw import _cli
from sparsefw._inputs import files

QUICK = {"pattern": "2:4", "method": "wanda"}


@pytest.fixture
def layer():
    return Layer()


def npy(path, array):
    np.save(path, array)
    return str(path)


def prune(server, folder, weights, *flags):
    out = folder / "mask.safetensors"
    code = _cli.main(["prune", "--server", server.address, "--weights", weights, "--method", "wanda",
                      "--pattern", "2:4", "--json", "-q", "--out", str(out), "--overwrite", *map(str, flags)])
    assert code == 0
    return load_file(out)["mask"]


def test_files_of_every_format_give_the_same_mask(shared_server, layer, folder, capsys):
    save_file({"w": layer.weight}, folder / "w.safetensors")
    save_file({"g": layer.gram}, folder / "g.safetensors")
    expected = prune(shared_server, folder, f"{folder}/w.safetensors", "--gram", f"{folder}/g.safetensors")
    np.savez(folder / "all.npz", w=layer.weight.astype(np.float64), g=layer.gram, x=layer.activations)
    weights = npy(folder / "w.npy", layer.weight)
    for source, flags in (
        (weights, ["--gram", npy(folder / "g.npy", layer.gram)]),
        (f"{folder}/all.npz:w", ["--gram", f"{folder}/all.npz:g"]),
    ):
        assert (prune(shared_server, folder, source, *flags) == expected).all()
    capsys.readouterr()
    pruned = folder / "p.safetensors"
    prune(shared_server, folder, weights, "--gram", folder / "g.npy", "--out-weights", pruned)
    assert (load_file(pruned)["weight"] == layer.weight * expected).all()


def test_activations_of_several_files_ranks_and_dtypes(shared_server, layer, folder, capsys):
    first = npy(folder / "a.npy", layer.activations[:80].reshape(4, 20, -1))
    save_file({"x": layer.activations[80:120].reshape(2, 20, -1)}, folder / "b.safetensors")
    third = npy(folder / "c.npy", layer.activations[120:].astype(np.float64))
    mask = prune(shared_server, folder, npy(folder / "w.npy", layer.weight), "--activations", first,
                 folder / "b.safetensors", "--activations", third)
    facts = json.loads(capsys.readouterr().out)
    assert facts["losses"]["final"] == pytest.approx(layer.loss(mask), rel=1e-5)
    with pytest.raises(sparsefw.InvalidArgument, match="given twice"):
        files.open_batches([first, first])


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("x.npy:t", "without a name"),
        ("x.npz", "which tensor is not said; it holds"),
        ("x.npz:c", 'there is no tensor "c"; it holds "a", "b"'),
        ("broken.npy", "cannot be read"),
        ("objects.npy", "cannot be read: "),
        ("none.npy", "cannot be read: No such file"),
        ("text.txt", "is no safetensors file"),
        ("pipe", "must be a regular file"),
    ],
)
def test_files_that_cannot_be_read_are_named(folder, argument, words):
    np.save(folder / "x.npy", np.ones(3))
    np.savez(folder / "x.npz", a=np.ones(3), b=np.ones(3))
    (folder / "broken.npy").write_bytes(b"\x93NUMPY\x01")
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    (folder / "text.txt").write_text("no tensors here")
    os.mkfifo(folder / "pipe")
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        files.open_tensor(f"{folder}/{argument}")
    assert words in str(refused.value)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("cut", ["--weights", "--gram", "--activations"])
def test_a_file_that_is_cut_short_is_refused(shared_server, layer, folder, capsys, cut):
    """Half of the activations would be a mask of other tokens."""
    arrays = {"--weights": layer.weight, "--gram": layer.gram, "--activations": layer.activations[:64]}
    used = ["--weights", "--activations" if cut == "--activations" else "--gram"]
    for flag in used:
        save_file({"t": arrays[flag]}, folder / f"{flag[2:]}.safetensors")
    path = folder / f"{cut[2:]}.safetensors"
    os.truncate(path, path.stat().st_size - arrays[cut].nbytes // 2)
    inputs = [word for flag in used for word in (flag, f"{folder}/{flag[2:]}.safetensors")]
    assert _cli.main(["prune", "--server", shared_server.address, *inputs, "--sparsity", "0.5", "--method", "wanda",
                      "--out", f"{folder}/mask", "-q"]) == 2
    size = arrays[cut].nbytes
    words = f"{path}: is cut short: its tensors need {size} bytes; it has {size // 2} for them"
    assert words in capsys.readouterr().err
    assert not (folder / "mask").exists()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 16]}, "must have 24 bytes for F32 [2, 3]; got 16"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 20]}, "is cut short: its tensors need 20 bytes; it has 16"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]}, "is no safetensors file"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 0]}, "is no safetensors file"),
        ({"dtype": "F32", "shape": [2, 2]}, "is no safetensors file"),
        ({"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]}, "is no safetensors file"),
        (4, "is no safetensors file"),
    ],
    ids=["shape", "short", "before", "reversed", "nowhere", "float", "number"],
)
def test_offsets_that_cannot_be_are_refused(folder, entry, words):
    header = json.dumps({"t": entry}).encode()
    (folder / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        files.open_tensor(f"{folder}/x")
    assert f"{folder}/x" in str(refused.value) and words in str(refused.value)


def test_without_pytorch_its_files_are_refused_with_the_line_that_converts_them(folder):
    (folder / "it's x.pt").write_bytes(b"\x80\x02.")
    # A None in sys.modules is how Python itself says that a module is not there.
    code = ("import sys; sys.modules['torch'] = None; from sparsefw import _cli; "
            "sys.exit(_cli.main(['prune', '--weights', sys.argv[1], '--gram', 'g', '--out', 'm']))")
    done = subprocess.run([sys.executable, "-c", code, folder / "it's x.pt"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stderr and "weights_only=True" in done.stderr
    assert "it'\"'\"'s x.safetensors" in done.stderr


def test_float64_is_cast(client, layer):
    # The same numbers: float32 values widened.
    wide = client.prune(layer.weight.astype(np.float64), activations=layer.activations.astype(np.float64), **QUICK)
    narrow = client.prune(layer.weight, activations=layer.activations, **QUICK)
    assert wide.losses == narrow.losses
    batches = [layer.activations[:50], layer.activations[50:].astype(np.float64)]
    with client.gram(batches) as gram:
        assert (gram.tokens, gram.dtype) == (200, "float32")


def test_a_transposed_x_and_a_square_of_tokens_are_named(client, layer):
    x = layer.activations
    for inputs, words in (
        ({"activations": x.T}, "activations must be [tokens, 32] to fit the weight [24, 32]; got [32, 200], "
                               "which looks transposed: pass x.T"),
        ({"activations": [x.T]}, "looks transposed"),
        ({"activations": x[:, :31]}, "got [200, 31]"),
        ({"gram": x @ x.T}, "got [200, 200]; of activations x [tokens, d_in] it is x.T @ x, not x @ x.T"),
        ({"gram": layer.gram[:31]}, "[31, 32]; these may be activations: activations="),
        ({"gram": layer.gram[:, :31]}, "these may be activations, transposed"),
    ):
        with pytest.raises(sparsefw.InvalidArgument) as refused:
            client.prune(layer.weight, **inputs, **QUICK)
        assert words in str(refused.value)
    # Also of tensors that are on the server.
    with client.upload(layer.weight) as weight, client.gram(x[:, :31]) as gram, \
            pytest.raises(sparsefw.InvalidArgument, match=r"gram must be \[32, 32\]"):
        client.prune(weight, gram, **QUICK)


def test_fewer_tokens_than_inputs_and_other_doubts_are_warnings(client, layer):
    few = layer.activations[:4]
    with pytest.warns(UserWarning, match=r"4 tokens are fewer than the 32 inputs.*shrinkage"):
        client.prune(layer.weight, activations=few, **QUICK)
    with client.gram(few) as gram, pytest.warns(UserWarning, match="4 tokens are fewer"):
        client.prune(layer.weight, gram, **QUICK)
    with pytest.warns(UserWarning, match=r"\[32, 32\] are square"):
        client.prune(layer.weight, activations=layer.activations[:32], **QUICK)
    with pytest.warns(UserWarning, match=r"rank of gram is at least \d+, .* 4 tokens at most 4"):
        client.upload(layer.gram, "gram", tokens=4).delete()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.prune(layer.weight, activations=layer.activations, **QUICK)
        client.upload((few.T @ few).astype(np.float32), "gram", tokens=4).delete()
        client.prune(layer.weight, layer.gram, **QUICK)


def test_a_gram_matrix_of_zeros_is_a_warning_and_the_summary_says_so(client, layer):
    with pytest.warns(UserWarning, match="the diagonal of gram is zero, .* look at where the activations"):
        result = client.prune(layer.weight, np.zeros_like(layer.gram), **QUICK)
    assert "|WX|^2 is 0: weight or activations are only zeros" in str(result)
    one = np.zeros_like(layer.gram)
    one[3, 3] = 1  # some inputs may well be dead
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "|WX|^2 is 0" not in str(client.prune(layer.weight, one, **QUICK))


def test_activations_of_zeros_are_a_warning(client, layer):
    zeros = np.zeros_like(layer.activations)
    words = "activations are only zeros, so every mask loses nothing .* look at where the activations"
    for activations in (zeros, [zeros, zeros], [zeros.astype(np.float16)]):
        with pytest.warns(UserWarning, match=words):
            result = client.prune(layer.weight, activations=activations, **QUICK)
        assert "|WX|^2 is 0" in str(result)
    with pytest.warns(UserWarning, match=words):
        client.gram(zeros).delete()
    last = zeros.copy()
    last[-1, -1] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batches in ([zeros, last], [last, zeros], [zeros, layer.activations]):
            client.gram(batches).delete()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [({}, "gram or activations must be given"), ({"gram": 1, "activations": 1}, "must not both be given")],
)
def test_neither_and_both_are_told_apart(client, layer, inputs, words):
    given = dict.fromkeys(inputs, layer.gram)
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        client.prune(layer.weight, **given, sparsity=0.6)

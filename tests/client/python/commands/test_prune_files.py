"""What `sparsefw prune` says of its files: those that an error is about, and those that are not written."""

import errno
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from layers import Layer
from sparsefw import _cli, _files
from support.processes import BIN_DIR, Cli, clean_environment


@pytest.fixture
def files(folder):
    layer = Layer()
    wrong = layer.gram.copy()
    wrong[0, 1] += 1e3 * wrong.max()
    holes = layer.activations.copy()
    holes[3, 4] = np.nan
    weight = layer.weight.copy()
    weight[1, 2] = np.nan
    for name, array in {
        "w": layer.weight, "g": layer.gram, "x": layer.activations, "asymmetric": wrong, "nan": layer.gram * np.nan,
        "holes": holes, "wnan": weight, "int": layer.gram.astype(np.int64), "xt": layer.activations.T.copy(),
        "wide": np.ones((32, 40), np.float32),
    }.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def words(files, server, *flags, weights="w", gram="g"):
    source = [] if gram is None else ["--gram", files / f"{gram}.npy"]
    given = ["prune", "--server", server, "--sparsity", 0.5, "-q", "--weights", files / f"{weights}.npy", *source]
    return [str(word) for word in [*given, *flags]]


@pytest.mark.parametrize(("gram", "weights", "activations", "message"), [
    ("asymmetric", "w", [], "{0}/asymmetric.npy: gram must be symmetric"),
    ("nan", "w", [], "{0}/nan.npy: gram must be finite; got gram[0, 0]=nan"),
    ("int", "w", [], "{0}/int.npy: gram must be float32 or float64; got int64"),
    ("g", "wnan", [], "{0}/wnan.npy: weight must be finite; got weight[1, 2]=nan"),
    (None, "w", ["holes"], "{0}/holes.npy: activations must be finite"),
    (None, "w", ["x", "holes"], "{0}/x.npy and 1 more: activations must be finite"),
    (None, "w", ["xt"], "got [32, 200], which looks transposed: save x.T\n"),
    ("x", "w", [], "{0}/x.npy: gram must be [32, 32] to fit the weight [24, 32]; got [200, 32]; these may be "
                   "activations: --activations\n"),
    ("wide", "w", [], "these may be activations, transposed: save x.T, and give it as --activations\n"),
])
def test_an_error_about_a_matrix_names_its_file_and_flags(
        shared_server, files, capsys, gram, weights, activations, message):
    flags = ["--activations", *(files / f"{name}.npy" for name in activations)] if activations else []
    code = _cli.main(words(files, shared_server.address, *flags, "--out", files / "m", weights=weights, gram=gram))
    assert code in (2, 3)
    assert message.format(files) in (said := capsys.readouterr().err) and said.startswith("sparsefw: ")


def test_an_error_about_an_option_names_no_file(shared_server, files, capsys):
    assert _cli.main(words(files, shared_server.address, "--alpha", 3, "--out", files / "m")) == 3
    assert capsys.readouterr().err.startswith("sparsefw: alpha must ")


@pytest.mark.parametrize("full", ["--out", "--out-weights"])
def test_a_full_disk_leaves_a_result_that_can_be_fetched(shared_server, files, full):
    """A limit on the size of files stands for a disk that is full; the other file fits."""
    flags = {"--out": files / "m", "--out-weights": "/dev/null"}
    if full == "--out-weights":
        flags = {"--out": "/dev/null", "--out-weights": files / "p"}
    given = words(files, shared_server.address, *(word for pair in flags.items() for word in pair))
    done = subprocess.run(
        ["prlimit", "--fsize=100", sys.executable, "-B", "-m", "sparsefw", *given], capture_output=True, text=True,
        check=False, env={**clean_environment(), "PYTHONPATH": str(Path(_cli.__file__).parents[1])})
    assert (done.returncode, done.stdout) == (2, "")
    found = re.fullmatch(
        rf"sparsefw: {flags[full]}: cannot be written: File too large; (jobs/\S+) keeps its result on "
        rf"{shared_server.address}: sparsefw-cli (fetch \1 .*)\n", done.stderr)
    assert found, done.stderr
    assert sorted(files.glob("[.mp]*")) == [], "no part of a file"
    # The command that was given works.
    command = shlex.split(found[2])
    for flag, name in (("--out", "m"), ("--out-weights", "p")):
        assert command[command.index(flag) + 1] == "FILE"
        command[command.index(flag) + 1] = files / name
    Cli(program=BIN_DIR / "sparsefw-cli").run(*command).expect(0)
    assert load_file(files / "m")["mask"].mean() == 0.5 and (files / "p").exists()


def test_the_flags_of_the_connection_are_in_the_command(shared_server, files, capsys):
    (files / "token").write_text("a-token")
    given = words(files, shared_server.address, "--token-file", files / "token", "--out", "/dev/full")
    assert _cli.main(given) == 2
    said = capsys.readouterr().err
    assert said.startswith("sparsefw: /dev/full: cannot be written: No space left on device; jobs/")
    assert said.endswith(f" --out FILE --server {shared_server.address} --token-file {files}/token\n")


def test_a_server_of_the_command_keeps_no_result(files, capsys, monkeypatch):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", str(BIN_DIR / "sparsefw-server"))
    assert _cli.main(words(files, "auto", "--out", "/dev/full")) == 2
    said = capsys.readouterr().err
    assert re.search(r"No space left on device; the result of jobs/\S+ is lost with the server of this command", said)
    assert "fetch" not in said


def test_every_file_that_cannot_be_written_is_named(folder):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as full, \
            _files.atomically(Path("/dev/full")) as file:
        file.write(b"x")
    assert full.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("flags", "shrunk"), [
    (["--preset", "best"], r" \(G shrunk\)"), (["--preset", "paper", "--reconstruct"], ""),
    (["--method", "sparsegpt"], ""),
])
def test_a_loss_of_weights_that_no_file_has_is_a_warning(shared_server, files, capsys, flags, shrunk):
    given = words(files, shared_server.address, *flags, "--out", files / "m")
    message = rf"new weights, which are written only with --out-weights; the mask alone loses \d+\.\d{{3}} %{shrunk}$"
    with pytest.warns(UserWarning, match=message) as warned:
        assert _cli.main(given) == 0
    assert len(warned) == 1
    # One line on standard error.
    done = subprocess.run(
        [sys.executable, "-m", "sparsefw", *given, "--overwrite", "--json"], capture_output=True, text=True,
        check=False, env={**clean_environment(), "PYTHONPATH": str(Path(_cli.__file__).parents[1])})
    assert re.fullmatch(rf"sparsefw: warning: the loss is that of {message[:-1]}\n", done.stderr), done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _cli.main([*given, "--overwrite", "--out-weights", str(files / "p")]) == 0
        mask_alone = words(files, shared_server.address, "--method", "wanda", "--out", files / "n")
        assert _cli.main(mask_alone) == 0

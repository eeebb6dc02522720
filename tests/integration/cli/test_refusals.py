"""Bad usage, files and values: a one-line message, the right exit code, nothing written."""
import json
import os
import socket
import time

import numpy as np
import pytest

from support import safetensors
from support.processes import HANG, Cli, as_nobody


def refused(cli, layer, code, words, *flags, **options):
    done = cli.run(*layer.submit("--json", *flags, **options))
    done.refused(code, *words)
    assert not layer.mask_file.exists(), "a refused job must not leave a mask"


@pytest.mark.parametrize("flags, words", [
    (["--no-such-flag"], ["--no-such-flag"]),
    (["--method", "magic"], ["--method", "magic", "wanda"]),
    (["--pattern", "diagonal"], ["--pattern", "diagonal", "per-row"]),
    (["--pattern", "5:4"], ["--pattern", "5:4"]),
    (["--pattern", "0:4"], ["--pattern", "0:4"]),
    (["--sparsity", "1.5"], ["--sparsity", "1.5", "[0, 1]"]),
    (["--sparsity", "-0.1"], ["--sparsity", "-0.1"]),
    (["--sparsity", "nan"], ["--sparsity", "nan"]),
    (["--sparsity", "most"], ["--sparsity", "most"]),
    (["--alpha", "2"], ["alpha", "2", "[0, 1]"]),
    (["--iterations", "0"], ["iterations", "0"]),
    (["--iterations", "many"], ["--iterations", "many"]),
    (["--step-rule", "guess"], ["--step-rule", "guess"]),
    (["--precision", "fp64"], ["--precision", "fp64", "tf32"]),
    (["--warm-start", "random"], ["--warm-start", "random"]),
    (["--warm-start", "sparsefw"], ["warm_start.method", "sparsefw", "WANDA"]),
    (["--deadline", "soon"], ["--deadline", "soon"]),
    (["--deadline", "-3s"], ["--deadline", "-3s"]),
    (["--rel-gap", "-1"], ["rel_gap", "-1"]),
    (["--report-every", "-1"], ["report_every", "-1"]),
    (["--shrinkage", "1"], ["shrinkage", "[0, 1)"]),
    (["--ria-exponent", "inf"], ["ria_exponent", "finite"]),
    (["--joint", "--joint-damping", "2"], ["joint_damping", "[0, 1]"]),
    (["--joint", "--joint-excluded", "1"], ["joint_excluded", "[0, 1)"]),
    (["--block-size", "0"], ["block_size", "at least 1"]),
    (["--priority", "101"], ["priority", "101", "[-100, 100]"]),
    (["--activations", "x.safetensors"], ["--gram", "--activations"]),
])
def test_bad_usage(cli, layer, flags, words):
    refused(cli, layer, 2, words, *flags)


@pytest.mark.parametrize("arguments, words", [
    ([], ["command"]),
    (["prune"], ["prune"]),
    (["submit"], ["--weights"]),
    (["status"], ["job"]),
    (["fetch", "jobs/x"], ["--out"]),
    (["gram"], ["--activations"]),
])
def test_missing_arguments(cli, arguments, words):
    done = cli.run(*arguments)
    done.expect(2)
    assert done.out == ""
    for word in words:
        assert word in done.err.lower(), done.err


def test_weights_and_gram_are_required(cli, layer):
    cli.run("submit", "--weights", layer.weights_file, "--method", "wanda", "--pattern", "2:4",
            "--out", layer.mask_file).refused(2, "--gram", "--activations")


def bad_values():
    for name, value in (("nan", np.nan), ("inf", np.inf), ("inf", -np.inf)):
        yield name, value


@pytest.mark.parametrize("name, value", bad_values())
def test_not_finite(cli, layer, folder, name, value):
    weight = layer.weight.copy()
    weight[3, 17] = value
    path = safetensors.write(folder / "bad.safetensors", {"w": weight})
    refused(cli, layer, 3, [name, "[3, 17]", "weight"], "--weights", path)
    gram = layer.gram.copy()
    gram[5, 6] = gram[6, 5] = value
    path = safetensors.write(folder / "bad.safetensors", {"g": gram})
    refused(cli, layer, 3, [name, "[5, 6]", "gram"], "--gram", path)
    activations = layer.activations.copy()
    activations[150, 9] = value
    path = safetensors.write(folder / "bad.safetensors", {"x": activations})
    done = cli.run("submit", "--weights", layer.weights_file, "--activations", path, "--method",
                   "wanda", "--pattern", "2:4", "--out", layer.mask_file)
    done.refused(3, name, "150", "9")
    cli.run("gram", "--activations", path, "--out", layer.mask_file).refused(3, name, "150", "9")
    assert not layer.mask_file.exists()


def test_gram_that_is_none(cli, layer, folder):
    gram = layer.gram.copy()
    gram[2, 7] += 0.5 * np.abs(gram).max()
    path = safetensors.write(folder / "bad.safetensors", {"g": gram})
    refused(cli, layer, 3, ["symmetric", "[2, 7]"], "--gram", path)
    gram = layer.gram.copy()
    gram[4, 4] = -1
    path = safetensors.write(folder / "bad.safetensors", {"g": gram})
    refused(cli, layer, 3, ["diagonal", "at least 0", "[4, 4]", "-1"], "--gram", path)


def test_wrong_shapes(cli, layer, folder):
    write = lambda array: safetensors.write(folder / "bad.safetensors", {"t": array})
    refused(cli, layer, 2, ["bad.safetensors", "[32, 32]", "[31, 31]"],
            "--gram", write(layer.gram[:31, :31]))
    refused(cli, layer, 2, ["bad.safetensors", "[32, 31]"], "--gram", write(layer.gram[:, :31]))
    refused(cli, layer, 2, ["bad.safetensors", "two dimensions", "[768]"],
            "--weights", write(layer.weight.reshape(-1)))
    refused(cli, layer, 2, ["bad.safetensors", "[0, 32]"], "--weights", write(layer.weight[:0]))
    cli.run("submit", "--weights", layer.weights_file, "--activations",
            write(layer.activations[:, :31]), "--method", "wanda", "--pattern", "2:4", "--out",
            layer.mask_file).refused(2, "bad.safetensors", "32", "31")


def test_pattern_that_does_not_divide_the_inputs(cli, layer):
    refused(cli, layer, 2, ["--pattern 2:5", "32 inputs", "5"], "--method", "wanda", pattern="2:5")


def test_wrong_dtypes(cli, layer, folder):
    write = lambda array: safetensors.write(folder / "bad.safetensors", {"t": array})
    refused(cli, layer, 2, ["bad.safetensors", "F32", "F16", "I64"],
            "--weights", write(layer.weight.astype("<i8")))
    refused(cli, layer, 2, ["bad.safetensors", "F16"], "--gram", write(layer.gram.astype("<f2")))


def test_unknown_and_ambiguous_tensors(cli, layer, folder):
    path = safetensors.write(folder / "two.safetensors", {"a": layer.weight, "b": layer.weight})
    refused(cli, layer, 2, ["two.safetensors", "no_such", "a", "b"], "--weights", f"{path}:no_such")
    refused(cli, layer, 2, ["two.safetensors", "a", "b"], "--weights", path)


def whole(layer):
    return layer.weights_file.read_bytes()


def header(**entry):
    return json.dumps({"w": {"dtype": "F32", "shape": [24, 32], "data_offsets": [0, 3072], **entry}})


BROKEN_FILES = {
    "empty": lambda layer: b"",
    "seven bytes": lambda layer: b"\0" * 7,
    "cut in the header": lambda layer: whole(layer)[:30],
    "cut in the data": lambda layer: whole(layer)[:-1],
    "one byte too many": lambda layer: whole(layer) + b"x",
    "header of 100 MB and one": lambda layer: (100_000_001).to_bytes(8, "little") + b"{" * 64,
    "header of 2^63": lambda layer: (1 << 63).to_bytes(8, "little") + b"{}",
    "header of 2^64 - 1": lambda layer: b"\xff" * 8 + b"{}",
    "not JSON": lambda layer: (4).to_bytes(8, "little") + b"oops",
    "not an object": lambda layer: (2).to_bytes(8, "little") + b"[]",
    "text": lambda layer: b"This is no tensor at all, it is a sentence.",
    "nested too deep": lambda layer: (200000).to_bytes(8, "little") + b"[" * 200000,
    "offsets beyond the file": lambda layer: with_header(header(data_offsets=[0, 4096])),
    "offsets reversed": lambda layer: with_header(header(data_offsets=[3072, 0])),
    "negative offset": lambda layer: with_header(header(data_offsets=[-4, 3068])),
    "shape that overflows": lambda layer: with_header(header(shape=[1 << 62, 1 << 62])),
    "negative shape": lambda layer: with_header(header(shape=[-24, -32])),
    "fractional shape": lambda layer: with_header(header(shape=[24.5, 32])),
    "shape and offsets differ": lambda layer: with_header(header(shape=[24, 31])),
    "no dtype": lambda layer: with_header('{"w": {"shape": [24, 32], "data_offsets": [0, 3072]}}'),
}


def with_header(text):
    return len(text).to_bytes(8, "little") + text.encode() + b"\0" * 3072


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_broken_files(cli, layer, folder, kind):
    path = folder / "broken.safetensors"
    path.write_bytes(BROKEN_FILES[kind](layer))
    refused(cli, layer, 2, ["broken.safetensors"], "--weights", path)


def test_header_that_really_is_that_large(cli, layer, folder):
    path = folder / "huge.safetensors"
    with path.open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little") + b"{}")
        file.truncate(8 + 100_000_001)
    refused(cli, layer, 2, ["huge.safetensors", "header"], "--weights", path)


def test_missing_file_folder_and_device(cli, layer, folder):
    refused(cli, layer, 2, ["/no/such/file"], "--weights", "/no/such/file")
    refused(cli, layer, 2, [str(folder)], "--weights", folder)
    refused(cli, layer, 2, ["/dev/null"], "--gram", "/dev/null")


@pytest.mark.skipif(bool(os.environ.get("SPARSEFW_SANITIZER")), reason="it reserves address space of its own")
def test_too_little_memory(layer, folder):
    """What is too much is refused before any of it is used: the file has a header and a hole."""
    path, count = folder / "huge.safetensors", 1 << 30
    header = json.dumps({"w": {"dtype": "F64", "shape": [1 << 15, 1 << 15], "data_offsets": [0, 8 * count]}})
    safetensors.write_raw(path, header.encode(), b"")
    os.truncate(path, path.stat().st_size + 8 * count)
    # There is room for the mapped file, not for its float32 values.
    limited = Cli("127.0.0.1:1", prefix=("prlimit", "--as=%d" % (10 << 30)))
    refused(limited, layer, 2, ["huge.safetensors", "too little memory"], "--weights", path)


def test_unreadable_file(shared_server, layer, folder):
    layer.weights_file.chmod(0)
    if os.geteuid() == 0:
        command = as_nobody(folder, "sparsefw-cli")
        cli = Cli(shared_server.address, program=command[-1], prefix=command[:-1])
        folder.chmod(0o777)
    else:
        cli = Cli(shared_server.address)
    refused(cli, layer, 2, ["w.safetensors", "ermission"])


def test_output_that_cannot_be_written(cli, layer, folder):
    done = cli.run(*layer.submit("--method", "wanda", "--out", "/no/such/folder/mask.safetensors"))
    done.refused(2, "--out", "/no/such/folder")
    done = cli.run(*layer.submit("--method", "wanda", "--out", folder))
    done.refused(2, "--out", str(folder))


def test_a_file_that_is_there_is_replaced_when_asked_for(cli, layer, folder):
    layer.mask_file.write_bytes(b"hours of work")
    submit = ["submit", "--weights", layer.weights_file, "--gram", layer.gram_file, "--sparsity", "0.6",
              "--method", "wanda"]
    for words in ([*submit, "--out", layer.mask_file], [*submit, "--out", folder / "m", "--out-weights", layer.mask_file],
                  ["gram", "--activations", layer.activations_file, "--out", layer.mask_file],
                  ["fetch", "jobs/x", "--out", layer.mask_file]):
        cli.run(*words).refused(2, str(layer.mask_file), "exists and is not overwritten; --overwrite")
        assert layer.mask_file.read_bytes() == b"hours of work" and not (folder / "m").exists()
    assert cli.run("list", "--json").expect(0).json()["jobs"] == [], "said before any work"
    cli.run(*submit, "--out", layer.mask_file, "--overwrite").expect(0)
    assert layer.mask().shape == layer.weight.shape
    words = ["--out", layer.mask_file, "--overwrite", "--method", "sparsefw"]
    before = layer.mask_file.read_bytes()
    cli.run(*submit[:-2], *words, "--warm-mask", layer.mask_file).refused(2, "is an input and would be lost")
    assert layer.mask_file.read_bytes() == before


def test_unknown_jobs(cli, folder):
    for command in ("status", "watch", "cancel"):
        cli.run(command, "jobs/no-such-job").refused(3, "jobs/no-such-job")
    cli.run("fetch", "jobs/no-such-job", "--out", folder / "m").refused(3, "jobs/no-such-job")
    cli.run("status", "nonsense").refused(3, "nonsense")


def test_an_indefinite_gram(cli, layer, folder):
    """Neither is any sum of activations: the loss would be below 0, and the bound 0 above it."""
    def submit(gram, *flags, weights=layer.weights_file):
        path = safetensors.write(folder / "indefinite.safetensors", {"gram": gram.astype("<f4")})
        return cli.run("submit", "--weights", weights, "--gram", path, "--pattern", "per-row",
                       "--sparsity", "0.5", "--out", folder / "mask", "--overwrite", *flags)

    gram = layer.gram.copy()
    gram[3, 3] = 0
    for method in ("wanda", "sparsefw"):
        submit(gram, "--method", method).refused(3, "positive semi-definite", "gram[3, 3]=0")
    # Every entry could be one of a Gram matrix, all of them together not.
    gram = 1.5 * np.eye(32) - 0.5
    weights = safetensors.write(folder / "ones.safetensors", {"weight": np.ones((24, 32), "<f4")})
    submit(gram, "--iterations", "20", weights=weights).refused(
        4, f"{folder / 'indefinite.safetensors'}: jobs/", "positive semi-definite", "no loss is below 0")


def test_sparsegpt_takes_no_swaps(cli, layer):
    refused(cli, layer, 2, ["swaps", "SPARSEGPT"], "--method", "sparsegpt", "--swaps")


def test_server_that_is_not_there(layer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
    cli = Cli(address)
    refused(cli, layer, 3, [address], "--method", "wanda")
    cli.run("info", "--timeout", "1s").refused(3, address)
    cli.run("list", "--timeout", "1s").refused(3, address)


def test_server_that_speaks_something_else(layer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        Cli(address).run("info", "--timeout", "1s").refused(3, address)


def test_bad_server_address(layer):
    for address in ("not an address", "127.0.0.1", ":abc", "127.0.0.1:99999", "http://127.0.0.1:50051"):
        for command in (["info"], ["health"], layer.submit("--method", "wanda")):
            begin = time.monotonic()
            Cli(address).run(*command, "--timeout", "1h").refused(2, address, "must be HOST:PORT")
            assert time.monotonic() - begin < HANG, "it is not waited for"

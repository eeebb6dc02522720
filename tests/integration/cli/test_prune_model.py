"""sparsefw-cli prune-model: whole checkpoints, interrupted and resumed."""
import fcntl
import json
import shutil
import signal

import numpy as np
import pytest

from support import reference, safetensors
from support.processes import Cli, Server, finish, wait_until
from support.rpc import Client, prune_service_pb2, tensor_service_pb2

D_IN, D_OUT, BLOCKS = 32, 24, 3
SHAPES = {"attn.q": (D_OUT, D_IN), "attn.k": (D_OUT, D_IN), "mlp.up": (40, D_IN), "mlp.down": (D_IN, 40)}


def make_gram(random, d_in):
    inputs = random.standard_normal((3 * d_in, d_in)) + random.standard_normal((3 * d_in, 1))
    return (inputs.T @ inputs).astype("<f4")


class Model:
    """Three blocks in two files with an index, beside files of every other kind."""

    def __init__(self, folder, seed=5):
        random = np.random.default_rng(seed)
        self.path = folder / "model"
        (self.path / "extra/deep").mkdir(parents=True)
        (self.path / "config.json").write_text('{"model_type": "made-up"}\n')
        (self.path / "extra/deep/vocab.bin").write_bytes(random.bytes(1000))
        (folder / "store").write_bytes(b"a file that is linked to\n")
        (self.path / "tokenizer.json").symlink_to(folder / "store")
        self.weights, self.grams, files = {}, {}, [{}, {}]
        for block in range(BLOCKS):
            for name, shape in SHAPES.items():
                array = random.standard_normal(shape).astype("<f4")
                kind = ("<f4", "<f2", "bf16")[block]
                array = safetensors.to_bf16(array) if kind == "bf16" else array.astype(kind)
                full = f"blocks.{block}.{name}.weight"
                self.weights[full] = files[block // 2][full] = array
                self.grams[full] = make_gram(random, shape[1])
            files[block // 2][f"blocks.{block}.norm.weight"] = random.standard_normal(D_IN).astype("<f4")
        files[0]["embed.weight"] = random.standard_normal((50, D_IN)).astype("<f4")
        files[0]["ids"] = np.arange(7)
        self.files = {f"model-0000{index + 1}-of-00002.safetensors": tensors
                      for index, tensors in enumerate(files)}
        for file, tensors in self.files.items():
            safetensors.write(self.path / file, tensors, {"format": "pt"})
        index = {name: file for file, tensors in self.files.items() for name in tensors}
        (self.path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))

    def gram_folder(self, folder):
        """Most in one file, by name with and without ".weight"; one in a file of its own."""
        folder.mkdir()
        rest = dict(self.grams)
        alone = "blocks.1.mlp.down.weight"
        safetensors.write(folder / f"{alone}.safetensors", {"gram": rest.pop(alone)}, {"token_count": "96"})
        stacked = {name.removesuffix(".weight") if "attn" in name else name: gram
                   for name, gram in rest.items()}
        safetensors.write(folder / "grams.safetensors", stacked)
        return folder

    def values(self, name, array=None):
        array = self.weights[name] if array is None else array
        return safetensors.from_bf16(array) if array.dtype == np.uint16 else array.astype("<f4")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = Model(folder)
    model.gram_files = model.gram_folder(folder / "grams")
    return model


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"), "--workers", "2")
    yield server
    server.close()


@pytest.fixture
def cli(server):
    return Cli(server.address)


def command(model, out, *flags, grams=None):
    return ["prune-model", model.path, "--grams", grams or model.gram_files, "--out", out, *flags]


WANDA = ("--method", "wanda", "--pattern", "per-row", "--sparsity", "0.5")
SLOW = ("--pattern", "per-row", "--sparsity", "0.5", "--iterations", "8000", "--alpha", "0")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file()}


def check_output(model, out, changed, keep=0.5):
    """Everything but the bytes of the matrices in `changed` is as it was."""
    before, after = contents(model.path), contents(out)
    assert after.keys() - before.keys() == {"sparsefw.json"} and not before.keys() - after.keys()
    for name, data in before.items():
        if name not in model.files:
            assert after[name] == data, name
            continue
        length = 8 + int.from_bytes(data[:8], "little")
        assert after[name][:length] == data[:length], "the header is the same, byte for byte"
        tensors, _ = safetensors.read(out / name)
        for tensor, array in model.files[name].items():
            if tensor in changed:
                kept = (model.values(tensor, tensors[tensor]) != 0).sum(axis=1)
                assert (kept == round(keep * array.shape[1])).all(), tensor
            else:
                np.testing.assert_array_equal(tensors[tensor], array, err_msg=tensor)
    return {name: tensors for file in model.files for name, tensors in safetensors.read(out / file)[0].items()}


def test_a_model_is_pruned_and_nothing_else_changes(server, cli, model, folder):
    out = folder / "out"
    done = cli.run(*command(model, out, *WANDA)).expect(0)
    tensors = check_output(model, out, model.weights)
    facts = json.loads((out / "sparsefw.json").read_text())
    assert [layer["name"] for layer in facts["layers"]] == sorted(model.weights)
    for layer in facts["layers"]:
        name = layer["name"]
        weight, pruned = model.values(name), model.values(name, tensors[name])
        mask = pruned != 0
        np.testing.assert_array_equal(pruned[mask], weight[mask], err_msg="kept weights stay as they are")
        assert layer["kept"] == mask.sum() and layer["shape"] == list(weight.shape)
        assert layer["losses"]["final"] == pytest.approx(
            reference.loss(weight, model.grams[name], mask), rel=1e-5)
        assert name in done.out
        assert layer["tokens"] == (96 if name == "blocks.1.mlp.down.weight" else 0)
    assert facts["kept"] * 2 == facts["weights"] == sum(w.size for w in model.weights.values())
    assert "12 layers" in done.out and "50.00 %" in done.out and len(done.out.splitlines()) == 16
    assert "\n1 matrix without a Gram matrix stays dense: embed.weight\n" in done.out
    assert facts["dense"] == ["embed.weight"]
    assert "[12/12]" in done.err
    client = Client(server.address)
    assert not client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest()).tensors
    assert not client.jobs.ListJobs(prune_service_pb2.ListJobsRequest()).jobs
    client.close()
    # Once more: nothing is sent, and the output is the same.
    first = contents(out)
    again = cli.run(*command(model, out, *WANDA, "--json")).expect(0).json()
    assert again["done_before"] == 12 and again["out"] == str(out)
    assert contents(out) == first


def test_a_manifest_names_some_matrices_and_new_weights_are_written(cli, model, folder):
    """k has the Gram matrix of q; down's is one of a stack."""
    q, k, down = (f"blocks.0.{name}.weight" for name in ("attn.q", "attn.k", "mlp.down"))
    stack = np.stack([np.eye(40, dtype="<f4"), model.grams[down]])
    safetensors.write(folder / "some.safetensors", {"attn": model.grams[q], "stack": stack})
    manifest = folder / "grams.json"
    manifest.write_text(json.dumps({"grams": {
        q: "some.safetensors:attn", k.removesuffix(".weight"): {"file": "some.safetensors", "tensor": "attn"},
        down: {"file": "some.safetensors", "tensor": "stack", "index": 1}}}))
    out = folder / "out"
    flags = ("--method", "wanda", "--pattern", "2:4", "--reconstruct", "--json")
    facts = cli.run(*command(model, out, *flags, grams=manifest)).expect(0).json()
    tensors = check_output(model, out, {q, k, down})
    assert set(facts["dense"]) == model.weights.keys() - {q, k, down} | {"embed.weight"}
    for layer in facts["layers"]:
        name = layer["name"]
        weight, pruned = model.values(name), model.values(name, tensors[name])
        reference.check_counts(pruned != 0, "2:4", 0.5)
        gram = model.grams[q if "attn" in name else name].astype(np.float64)
        difference = weight.astype(np.float64) - pruned
        loss = np.einsum("ij,jk,ik->", difference, gram, difference)
        assert layer["losses"]["reconstructed"] == pytest.approx(loss, rel=1e-4)
        assert loss < layer["losses"]["final"]


def records(state):
    return len(list(state.glob("layer.*.json")))


@pytest.fixture(scope="module")
def straight(server, model):
    """The output of a run that was not interrupted."""
    out = model.path.parent / "straight"
    Cli(server.address).run(*command(model, out, *SLOW)).expect(0)
    return out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_goes_on(cli, model, folder, straight, number):
    out, state = folder / "out", folder / "state"
    flags = (*SLOW, "--state-dir", state, "--in-flight", "2")
    process = cli.start(*command(model, out, *flags))
    wait_until(lambda: records(state) >= 2, "two layers are done")
    process.send_signal(number)
    ended = finish(process)
    before = records(state)
    assert 2 <= before < 12 and not out.exists()
    if number == signal.SIGINT:
        assert ended.code == 5 and "interrupted" in ended.sentence and str(state) in ended.sentence
    again = cli.run(*command(model, out, *flags, "--json")).expect(0).json()
    assert again["done_before"] >= before
    assert contents(out) == contents(straight), "byte for byte"


def test_a_server_that_restarts_in_the_middle(model, folder, straight, start_server):
    server = start_server("--workers", "2")
    out, state = folder / "out", folder / "state"
    process = Cli(server.address).start(*command(model, out, *SLOW, "--state-dir", state))
    wait_until(lambda: records(state) >= 1, "a layer is done")
    server.signal(signal.SIGKILL)
    server.wait()
    server = start_server("--workers", "2", "--listen", server.address, "--state-dir", server.state_dir)
    finish(process).expect(0)
    assert contents(out) == contents(straight)


def test_another_run_does_not_take_the_state(cli, model, folder):
    state, out = folder / "state", folder / "out"
    flags = (*WANDA, "--state-dir", state)
    cli.run(*command(model, out, *flags)).expect(0)
    other = ("--method", "wanda", "--pattern", "per-row", "--sparsity", "0.75", "--state-dir", state)
    cli.run(*command(model, out, *other)).refused(2, str(state), "sparsity", "0.75")
    grams = folder / "grams"
    shutil.copytree(model.gram_files, grams)
    name = "blocks.1.mlp.down.weight"
    safetensors.write(grams / f"{name}.safetensors", {"gram": model.grams[name] * 2}, {"token_count": "96"})
    cli.run(*command(model, out, *flags, grams=grams)).refused(2, name, "Gram matrix")
    with open(state / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cli.run(*command(model, out, *flags)).refused(2, str(state), "another process")
    # A layer whose file was damaged is pruned again.
    (state / "layer.00003.data").write_bytes(b"damaged")
    assert cli.run(*command(model, out, *flags, "--json")).expect(0).json()["done_before"] == 11


def test_options_are_checked_before_anything_is_done(cli, model, folder):
    cli.run(*command(model, folder / "out", *WANDA, "--iterations", "0")).refused(2, "iterations must be at least 1")
    assert not (folder / "out").exists() and not (folder / "out.state").exists()
    cli.run(*command(model, folder / "out", *WANDA)).expect(0)


def test_errors_name_the_layer(cli, model, folder):
    name, out = "blocks.0.attn.q.weight", folder / "out"

    def refused(grams, code, *words, flags=WANDA):
        cli.run(*command(model, out, *flags, "--state-dir", folder / "state", grams=grams)).refused(code, *words)
        assert not out.exists()

    def gram_file(tensors):
        path = folder / "grams"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        safetensors.write(path / "g.safetensors", tensors)
        return path

    good = model.grams[name]
    refused(gram_file({"blocks.9.attn.q.weight": good}), 2, "blocks.9.attn.q.weight", "no tensor")
    refused(gram_file({name: good[:5, :5].copy()}), 2, name, "[32, 32]", "[5, 5]")
    refused(gram_file({name: good, name.removesuffix(".weight"): good}), 2, name, "two Gram matrices")
    refused(gram_file({name: good.astype("<f2")}), 2, name, "F32 or F64", "F16")
    refused(gram_file({"blocks.0.norm.weight": good}), 2, "blocks.0.norm.weight", "must be a matrix")
    refused(folder / "none.json", 2, "none.json", "No such file")
    nan = good.copy()
    nan[2, 3] = np.nan
    # What is finished by then stays; the others are not begun.
    refused(gram_file({name: nan}), 3, name, "g.safetensors", "[2, 3]")
    shutil.rmtree(folder / "state")
    manifest = folder / "m.json"
    for text, words in (("[]", ["m.json", "JSON object"]), ("{}", ["m.json", '"grams"']),
                        ('{"grams": {"x": 3}}', ["x", "FILE[:TENSOR]"]),
                        ('{"grams": {}}', ["m.json", "no Gram matrix"]),
                        (json.dumps({"grams": {name: {"file": "grams/g.safetensors", "index": 0}}}),
                         [name, "[n, d_in, d_in]"])):
        manifest.write_text(text)
        refused(manifest, 2, *words)
    bad_alpha = ("--pattern", "per-row", "--sparsity", "1.5")
    refused(model.gram_files, 2, "sparsity", flags=bad_alpha)
    refused(model.gram_files, 2, "blocks.0.attn.k.weight", "divisible by 7", flags=("--pattern", "3:7"))


def test_folders_that_would_be_lost(cli, model, folder):
    full = folder / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    cli.run(*command(model, full, *WANDA)).refused(2, "--out", "not overwritten")
    cli.run(*command(model, model.path / "pruned", *WANDA)).refused(2, "--out", "in each other")
    cli.run(*command(model, folder / "out", *WANDA, "--state-dir", full)).refused(2, "--state-dir", "other things")
    cli.run(*command(model, folder / "out", *WANDA, "--state-dir", model.path / "s")).refused(2, "--state-dir")
    assert contents(full) == {"mine": b"mine"}
    empty = folder / "empty"
    empty.mkdir()
    cli.run("prune-model", empty, "--grams", model.gram_files, "--out", folder / "out", *WANDA) \
        .refused(2, str(empty), "model.safetensors")
    index = {"weight_map": {"a": "../elsewhere.safetensors"}}
    (empty / "model.safetensors.index.json").write_text(json.dumps(index))
    cli.run("prune-model", empty, "--grams", model.gram_files, "--out", folder / "out", *WANDA) \
        .refused(2, "index.json", "in this folder")


def test_a_model_in_one_file_and_a_server_that_is_not_there(cli, model, folder):
    one = folder / "one"
    one.mkdir()
    name = "blocks.0.attn.q.weight"
    safetensors.write(one / "model.safetensors", {name: model.weights[name], "other": np.arange(3)})
    grams = folder / "g"
    grams.mkdir()
    safetensors.write(grams / "g.safetensors", {name: model.grams[name]})
    arguments = ["prune-model", one, "--grams", grams, "--out", folder / "out", *WANDA]
    Cli("127.0.0.1:1").run(*arguments, "--timeout", "300ms").refused(3, "127.0.0.1:1")
    cli.run(*arguments).expect(0)
    assert (safetensors.read(folder / "out/model.safetensors")[0][name] != 0).sum() == D_OUT * D_IN / 2

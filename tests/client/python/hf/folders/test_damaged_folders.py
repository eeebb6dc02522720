"""Model folders with damaged, doubled or missing files: what is read, and what is said before any work."""

import json
import shutil
import struct

import pytest
import safetensors.torch
import sparsefw
import tiny
import tokenizers
import torch
import transformers
from sparsefw import _cli
from sparsefw.hf import prune_model

OPTIONS = {"sparsity": 0.5, "method": "wanda", "data": tiny.tokens(), "progress": False}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 538090408\n"
COMMANDS = {
    "prune-model": ["--sparsity", "0.5", "--method", "wanda", "--out", "{0}/out"],
    "tune": ["--sparsity", "0.5", "--candidate", '{{"method": "wanda"}}', "--candidate", '{{"method": "ria"}}'],
    "eval-perplexity": [],
}


@pytest.fixture
def dense(folder):
    """The folder of a model, beside a text."""
    tiny.make("llama").save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(" ".join(f"w{i * i % 97}" for i in range(400)))
    return folder / "dense"


def add_tokenizer(folder):
    words = {f"w{i}": i for i in range(128)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0").save_pretrained(folder)


def refused(command, server, folder, capsys):
    """The line of standard error of a command that ends with code 2 and no traceback."""
    words = [command, f"{folder}/dense", "--data", f"{folder}/data.txt", "--sequence-length", "32", "-q",
             *(word.format(folder) for word in COMMANDS[command])]
    if command != "eval-perplexity":
        words += ["--server", server.address]
    assert _cli.main(words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sparsefw: ")]
    assert not (folder / "out").exists()
    return line


@pytest.mark.parametrize(
    "text", ["# Modèle\n".encode("latin-1"), "# Modell ü\n".encode("utf-16"), "# Modèle\n".encode()],
    ids=["latin-1", "utf-16", "utf-8"])
def test_a_card_in_any_encoding_keeps_its_bytes(client, dense, folder, text):
    (dense / "README.md").write_bytes(text)
    prune_model(dense, out=folder / "out", server=client, **OPTIONS)
    card = (folder / "out/README.md").read_bytes()
    assert card.startswith(text.rstrip()) and card.count(b"## Pruning") == 1


@pytest.mark.parametrize("shards", ["there", "gone"])
def test_one_file_is_read_rather_than_what_an_index_names(client, dense, folder, shards):
    """As from_pretrained does."""
    other = tiny.make("llama", seed=9)
    other.save_pretrained(folder / "sharded", max_shard_size="20KB")
    for path in (folder / "sharded").glob("model*"):
        if shards == "there" or path.name.endswith(".json"):
            shutil.copyfile(path, dense / path.name)
    assert (dense / "model.safetensors.index.json").exists()
    expected = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype="auto")
    assert not tiny.same(expected, other)
    prune_model(expected, server=client, **OPTIONS)
    prune_model(dense, out=folder / "out", server=client, **OPTIONS)
    assert tiny.same(transformers.AutoModelForCausalLM.from_pretrained(folder / "out", dtype="auto"), expected)
    assert [path.name for path in (folder / "out").glob("model*")] == ["model.safetensors"]


def test_the_dtype_is_that_of_the_file_that_is_read(client, dense, folder):
    """Shards that nobody reads do not count."""
    tiny.make("llama", dtype=torch.bfloat16, num_hidden_layers=6).save_pretrained(
        folder / "sharded", max_shard_size="20KB")
    for path in (folder / "sharded").glob("model*"):
        shutil.copyfile(path, dense / path.name)
    whole = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype="auto")
    expected = prune_model(whole, server=client, **OPTIONS)
    report = prune_model(dense, out=folder / "out", server=client, **OPTIONS)
    assert [row["losses"] for row in report.layers] == [row["losses"] for row in expected.layers]


def test_a_shard_that_is_missing_is_named(client, folder):
    tiny.make("llama").save_pretrained(folder / "dense", max_shard_size="20KB")
    first = min((folder / "dense").glob("model-*.safetensors"))
    first.unlink()
    with pytest.raises(sparsefw.InvalidArgument, match=rf"{first.name}: is missing; model\.safetensors\.index\.json"):
        prune_model(folder / "dense", out=folder / "out", server=client, **OPTIONS)


def with_header(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(16)


def entry(begin, end):
    return with_header({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [begin, end]}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (POINTER, "is no safetensors file: it is a pointer of Git LFS; `git lfs pull` gets the file itself"),
        (b"", "is no safetensors file"),
        (b"1234567", "is no safetensors file"),
        (bytes(range(1, 100)), "is no safetensors file"),
        (struct.pack("<Q", 4) + b"text", "is no safetensors file"),
        (with_header([]), "is no safetensors file"),
        (with_header({"w": 1}), "is no safetensors file"),
        (entry(0, 17), "is cut short: its tensors need 17 bytes; it has 16"),
    ],
    ids=["pointer", "empty", "short", "long header", "no JSON", "list", "no entry", "cut"])
def test_what_is_no_safetensors_file_is_named(shared_server, dense, folder, capsys, data, words):
    path = dense / "model.safetensors"
    path.write_bytes(data)
    assert f"{path}: {words}" in refused("prune-model", shared_server, folder, capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_weights_that_are_cut_or_a_pointer_are_named_by_every_command(
    shared_server, dense, folder, capsys, command
):
    add_tokenizer(dense)
    path = dense / "model.safetensors"
    whole = path.read_bytes()
    for data in (POINTER, whole[: len(whole) // 2]):
        path.write_bytes(data)
        assert str(path) in refused(command, shared_server, folder, capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_family_that_transformers_does_not_know_is_named(shared_server, dense, folder, capsys, command):
    add_tokenizer(dense)
    config = json.loads((dense / "config.json").read_text())
    (dense / "config.json").write_text(json.dumps({**config, "model_type": "perceptron9"}))
    line = refused(command, shared_server, folder, capsys)
    assert f"{dense}: " in line and "perceptron9" in line


def test_code_of_a_folder_is_never_run(shared_server, dense, folder, capsys):
    """Nor is anybody asked: Transformers would, on a terminal."""
    add_tokenizer(dense)
    (dense / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (dense / "config.json").write_text(json.dumps(own))
    line = refused("prune-model", shared_server, folder, capsys)
    assert f"{dense}: " in line and "custom code" in line
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.update(intermediate_size=32), r"cannot become model\.layers\.0\.mlp\..*\[32, 32\]"),
        (lambda config: config.update(vocab_size=64), r"cannot become model\.embed_tokens\.weight \[64, 32\]"),
    ],
    ids=["a block", "the embeddings"])
def test_tensors_that_do_not_fit_the_configuration_are_named(client, dense, change, words):
    config = json.loads((dense / "config.json").read_text())
    change(config)
    (dense / "config.json").write_text(json.dumps(config))
    data = tiny.tokens() % 32
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune_model(dense, server=client, **{**OPTIONS, "data": data})


def test_missing_embeddings_are_named(dense):
    path = dense / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    del tensors["model.embed_tokens.weight"]
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    with pytest.raises(sparsefw.InvalidArgument, match=r"has no tensor for model\.embed_tokens\.weight"):
        prune_model(dense, server="127.0.0.1:9", **OPTIONS)


def test_an_index_that_names_another_file_is_named(client, dense):
    """Of a tensor that the file does not have."""
    shutil.copy(dense / "model.safetensors", dense / "model-00001-of-00002.safetensors")
    tensors = safetensors.torch.load_file(dense / "model.safetensors")
    last = {name: value for name, value in tensors.items() if ".layers.1." in name}
    first = {name: value for name, value in tensors.items() if name not in last}
    (dense / "model.safetensors").unlink()
    for part, held in (("1", first), ("2", last)):
        safetensors.torch.save_file(held, dense / f"model-0000{part}-of-00002.safetensors", {"format": "pt"})
    wrong = {name: f"model-0000{2 if 'layers.0' in name or name in last else 1}-of-00002.safetensors" for name in tensors}
    (dense / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": wrong}))
    with pytest.raises(sparsefw.InvalidArgument, match=r"00002-of-00002\.safetensors.*layers\.0\."):
        prune_model(dense, server=client, **OPTIONS)


@pytest.mark.parametrize("command", COMMANDS)
def test_text_without_a_tokenizer_names_the_folder(shared_server, dense, folder, capsys, command):
    line = refused(command, shared_server, folder, capsys)
    assert f"{dense}: its tokenizer cannot be loaded: " in line

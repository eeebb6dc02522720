"""A folder in, a folder out, block by block."""

import json
import re
from pathlib import Path

import pytest
import sparsefw
import tiny
import torch
import transformers
from safetensors.torch import load_file, save_file
from sparsefw.hf import prune_model
from support import reference


def save(family, folder, dtype=torch.float32, shards="20KB"):
    model = tiny.make(family, dtype=dtype)
    model.save_pretrained(folder, max_shard_size=shards)
    return model


def tensors(folder):
    return {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}


def prune(model, out, server, **options):
    options = {"sparsity": 0.6, "iterations": 30, "data": tiny.tokens(), "progress": False, **options}
    return prune_model(model, out=out, server=server, **options)


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


@pytest.mark.parametrize("family", tiny.CONFIGS)
def test_streamed_and_in_memory_are_the_same(client, folder, family):
    save(family, folder / "dense")
    streamed = prune(folder / "dense", folder / "streamed", client)
    model = load(folder / "dense")
    whole = prune(model, folder / "whole", client)
    assert [r["name"] for r in streamed.layers] == [r["name"] for r in whole.layers]
    assert [r["losses"] for r in streamed.layers] == [r["losses"] for r in whole.layers]
    loaded = load(folder / "streamed")
    assert type(loaded) is type(model)
    for name, value in load(folder / "whole").named_parameters():
        assert torch.equal(value, model.get_parameter(name)), name
        assert torch.equal(value, loaded.get_parameter(name)), name
    for row in streamed.layers:
        kept = (tiny.matrix(loaded, row["name"]) != 0).numpy()
        reference.check_counts(kept, "per-row", 0.6)
        assert kept.sum() == row["kept"]


def test_the_folder_is_the_same_but_for_what_was_pruned(client, folder):
    save("mixtral", folder / "dense", torch.bfloat16)
    (folder / "dense/tokenizer.json").write_text("{}")
    (folder / "dense/pytorch_model.bin").write_text("the same weights, dense")
    (folder / "dense/README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    report = prune(folder / "dense", folder / "out", client, method="wanda")
    before, after = tensors(folder / "dense"), tensors(folder / "out")
    assert list(before) == list(after)
    parameters = {tiny.split(row["name"])[0].rpartition(".")[2] for row in report.layers}
    assert parameters == {"weight", "gate_up_proj", "down_proj"}
    for name, value in before.items():
        assert value.dtype == after[name].dtype == torch.bfloat16
        pruned = ("experts" in name or "_proj" in name)
        assert torch.equal(value, after[name]) != pruned, name
        assert torch.equal(after[name], value * (after[name] != 0)), name
    names = {path.name for path in (folder / "out").iterdir()}
    expected = {path.name for path in (folder / "dense").iterdir()} - {"pytorch_model.bin"}
    assert names == expected | {"sparsefw.json"}
    facts = json.loads((folder / "out/sparsefw.json").read_text())
    assert facts["layers"] == report.layers
    assert facts["settings"]["pattern"] == "per-row"
    assert facts["versions"]["server"]
    card = (folder / "out/README.md").read_text()
    assert card.startswith("---\nlicense: mit\n---\n# A model\n")
    assert card.count("## Pruning") == 1
    for text in (card, str(report)):  # the bound is not one for every mask
        assert "share of the mask's loss that no mask with the same fixed weights can avoid" in text
    # Again, over what it wrote before: the card has one section.
    prune(folder / "out", folder / "out2", client, method="wanda", pattern="2:4", sparsity=None)
    assert (folder / "out2/README.md").read_text().count("## Pruning") == 1


def test_names_as_old_checkpoints_have_them(client, folder):
    """GPT-2 on the hub: without the prefix of the base model, and with buffers nobody needs."""
    model = save("gpt2", folder / "dense", shards="1GB")
    old = {
        name.removeprefix("transformer."): value
        for name, value in tensors(folder / "dense").items() if name != "lm_head.weight"}
    old["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(old, folder / "dense/model.safetensors", {"format": "pt"})
    prune(folder / "dense", folder / "out", client)
    assert set(tensors(folder / "out")) == set(old)
    prune(model, None, client)
    loaded = load(folder / "out")
    for name, value in model.named_parameters():
        assert torch.equal(value, loaded.get_parameter(name)), name


def test_new_weights_in_a_folder(client, folder):
    save("llama", folder / "dense", torch.bfloat16)
    prune(folder / "dense", folder / "streamed", client, method="wanda", reconstruct=True)
    model = load(folder / "dense")
    prune(model, None, client, method="wanda", reconstruct=True)
    loaded = load(folder / "streamed")
    for name, value in model.named_parameters():
        assert torch.equal(value, loaded.get_parameter(name)), name


def rewrite(folder, change):
    """Every tensor of a folder as `change` of name and tensor gives it."""
    for path in folder.glob("*.safetensors"):
        new = {name: change(name, value).contiguous() for name, value in load_file(path).items()}
        save_file(new, path, {"format": "pt"})


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral"])
@pytest.mark.parametrize("reconstruct", [False, True])
def test_kept_weights_keep_their_bits(client, folder, family, reconstruct):
    """Where a folder's weights have several dtypes, also those that are not read as they are there."""
    save(family, folder / "dense")
    precise = ("down_proj", "w2", "c_fc", "o_proj")
    rewrite(
        folder / "dense",
        lambda name, value: value if any(word in name for word in precise) else value.to(torch.bfloat16))
    before = tensors(folder / "dense")
    report = prune(folder / "dense", folder / "out", client, method="wanda", reconstruct=reconstruct)
    after = tensors(folder / "out")
    assert before.keys() == after.keys()
    seen = set()
    for name, value in before.items():
        assert value.dtype == after[name].dtype, name
        if value.dtype == torch.float32:
            seen.add(torch.equal(value, after[name]))
            kept = value * (after[name] != 0)
            assert torch.equal(after[name], kept) != (reconstruct and not torch.equal(value, after[name])), name
            if not torch.equal(value, after[name]):
                reference.check_counts(
                    ((after[name].T if family == "gpt2" else after[name]) != 0).numpy(), "per-row", 0.6)
    assert False in seen
    assert len(report.layers) == 2 * tiny.MATRICES[family]


def test_what_a_family_keeps_in_float32(client, folder):
    """A bias in float32 decides to which experts a token goes; in bfloat16 it is the same for all."""
    torch.manual_seed(4)
    config = transformers.Dots1Config(
        **tiny.COMMON, num_key_value_heads=2, head_dim=8, intermediate_size=48, moe_intermediate_size=16,
        n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=0,
        max_position_embeddings=64, initializer_range=tiny.SPREAD)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "dense")
    near = 64 + 0.05 * torch.tensor([1.0, -1.0, 2.0, -2.0])
    rewrite(
        folder / "dense",
        lambda name, value: near.clone() if "e_score_correction_bias" in name else value.to(torch.bfloat16))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "dense", dtype=torch.bfloat16)
    streamed = prune(folder / "dense", folder / "out", client)
    whole = prune(model, None, client)
    assert [row["tokens"] for row in streamed.layers] == [row["tokens"] for row in whole.layers]
    assert [row["losses"] for row in streamed.layers] == [row["losses"] for row in whole.layers]
    assert torch.equal(tensors(folder / "out")["model.layers.1.mlp.gate.e_score_correction_bias"], near)


def test_a_folder_that_holds_something_else_is_not_overwritten(client, folder):
    save("llama", folder / "dense")
    (folder / "out").mkdir()
    (folder / "out/diary.txt").write_text("mine")
    with pytest.raises(sparsefw.InvalidArgument, match="is not overwritten"):
        prune(folder / "dense", folder / "out", client)
    assert (folder / "out/diary.txt").read_text() == "mine"
    with pytest.raises(sparsefw.InvalidArgument, match="is no folder"):
        prune(folder / "nothing", folder / "new", client)
    with pytest.raises(sparsefw.InvalidArgument, match=r"no config\.json"):
        prune(folder / "out", folder / "new", client)


def test_a_pruned_model_is_replaced_when_asked_for_or_by_its_own_run(client, folder):
    save("llama", folder / "dense")
    state = folder / "state"
    prune(folder / "dense", folder / "out", client, method="wanda", state_dir=state)
    with pytest.raises(sparsefw.InvalidArgument, match=r"out: exists and is not overwritten.*--overwrite"):
        prune(folder / "dense", folder / "out", client, method="wanda")
    with pytest.raises(sparsefw.InvalidArgument, match="a pruned model of another run"):
        prune(folder / "dense", folder / "out", client, method="ria", state_dir=folder / "other")
    # The run that made it goes on, also where nothing is left but to write the folder.
    (folder / "out/config.json").unlink()
    prune(folder / "dense", folder / "out", client, method="wanda", state_dir=state)
    load(folder / "out")
    replaced = prune(folder / "dense", folder / "out", client, method="ria", overwrite=True)
    assert json.loads((folder / "out/sparsefw.json").read_text())["settings"] == replaced.settings
    # Damage is no run's.
    (folder / "out/sparsefw.json").write_text("{")
    with pytest.raises(sparsefw.InvalidArgument, match="--overwrite"):
        prune(folder / "dense", folder / "out", client, method="ria", state_dir=folder / "again")


def test_the_place_is_checked_before_the_state_is_opened(client, folder):
    save("llama", folder / "dense")
    prune(folder / "dense", folder / "out", client, method="wanda")
    before = {path.name for path in folder.iterdir()}
    for options in ({}, {"state_dir": folder / "state"}):
        with pytest.raises(sparsefw.InvalidArgument, match="exists and is not overwritten"):
            prune(folder / "dense", folder / "out", "127.0.0.1:9", method="ria", **options)
        assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("filled", [False, True])
def test_a_model_that_another_run_wrote_meanwhile_stays(client, folder, monkeypatch, filled):
    """Also in a folder that was empty at the start. The work of hours is kept beside it, and named."""
    from sparsefw.hf import source

    save("llama", folder / "dense")
    prune(folder / "dense", folder / "other", client, method="wanda")
    if filled:
        (folder / "out").mkdir()
    write = source.Streamed.write

    def meanwhile(self, *arguments):
        write(self, *arguments)
        for path in (folder / "other").iterdir():
            (folder / "out").mkdir(exist_ok=True)
            (folder / "out" / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(source.Streamed, "write", meanwhile)
    with pytest.raises(sparsefw.InvalidArgument, match="exists and is not overwritten") as refused:
        prune(folder / "dense", folder / "out", client, method="ria", state_dir=folder / "state")
    kept = Path(re.search("the pruned model of this run is (.*?) \\(", str(refused.value))[1])
    place = folder / "out/.sparsefw.partial" if filled else folder / ".out.partial"
    assert str(kept).startswith(f"{place.resolve()}-")
    load(kept)
    for path in (folder / "other").iterdir():
        assert (folder / "out" / path.name).read_bytes() == path.read_bytes()
    # Nor does the next run remove it.
    monkeypatch.undo()
    prune(folder / "dense", folder / "out", client, method="ria", state_dir=folder / "state", overwrite=True)
    if not filled:
        load(kept)


@pytest.fixture
def nothing_is_computed(monkeypatch):
    """Whatever is refused is refused before the model is read."""
    from sparsefw.hf import work

    def computed(*_):
        raise AssertionError("the run began")

    monkeypatch.setattr(work, "Streamed", computed)


def mounted(monkeypatch, path):
    """As if a disk were mounted there."""
    from sparsefw.hf import folder as folders

    monkeypatch.setattr(folders.os.path, "ismount", lambda place: Path(place) == path.resolve())


def refused(folder, words, out=None, **options):
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune(folder / "dense", out or folder / "out", "127.0.0.1:9", **options)


def test_out_that_cannot_be_written_is_refused_at_the_start(folder, nothing_is_computed, monkeypatch):
    save("llama", folder / "dense")
    (folder / "file").write_text("")
    refused(folder, "cannot be written: .*/file: Not a directory", folder / "file/out")
    refused(folder, "cannot be written: /proc: ", Path("/proc/sparsefw/out"))  # root, too
    (folder / "circle").symlink_to(folder / "circle")
    refused(folder, "no place for a folder|not overwritten|cannot be written", folder / "circle")
    refused(folder, "state_dir must not be in out", state_dir=folder / "out")
    refused(folder, "state_dir must not be in out", state_dir=folder / "out/state")
    (folder / "link").symlink_to(folder / "out")
    refused(folder, "state_dir must not be in out", state_dir=folder / "link/state")
    (folder / "sparsefw.json").write_text("{}")
    refused(folder, "the model must not be in out", folder)
    (folder / "dense/sparsefw.json").write_text("{}")  # pruned before
    (folder / "again").symlink_to(folder / "dense")
    refused(folder, "the model must not be in out", folder / "again")
    refused(folder, "the model must not be in out", folder / "dense")
    (folder / "disk").mkdir()
    (folder / "disk/sparsefw.json").write_text("{}")
    mounted(monkeypatch, folder / "disk")
    refused(folder, "is a mount point with a pruned model", folder / "disk")
    assert not (folder / "out").exists()


def test_an_unwritable_parent_is_refused_at_the_start(folder, nothing_is_computed, monkeypatch):
    import tempfile

    def denied(dir, **_):
        raise PermissionError(13, "Permission denied", str(dir))

    save("llama", folder / "dense")
    monkeypatch.setattr(tempfile, "mkdtemp", denied)
    refused(folder, f"cannot be written: {folder.resolve()}: Permission denied", folder / "new/out")


@pytest.mark.parametrize("disk", [False, True])
def test_an_empty_folder_is_filled_where_it_is(client, folder, monkeypatch, disk):
    """A mount point cannot be replaced, and its parent may be read-only."""
    save("llama", folder / "dense")
    prune(folder / "dense", folder / "expected", client, method="wanda")
    (folder / "out").mkdir()
    if disk:
        (folder / "out/lost+found").mkdir()
        mounted(monkeypatch, folder / "out")
    inode, here = (folder / "out").stat().st_ino, {path.name for path in folder.iterdir()}
    report = prune(folder / "dense", folder / "out", client, method="wanda")
    assert (folder / "out").stat().st_ino == inode
    assert {path.name for path in folder.iterdir()} == here
    names = {path.name for path in (folder / "out").iterdir()}
    assert names - {"lost+found"} == {path.name for path in (folder / "expected").iterdir()}
    for path in (folder / "expected").glob("*.safetensors"):
        assert path.read_bytes() == (folder / "out" / path.name).read_bytes()
    assert json.loads((folder / "out/sparsefw.json").read_text())["layers"] == report.layers


def test_a_folder_that_was_filled_in_part_is_filled_again(client, folder, monkeypatch):
    """sparsefw.json comes last; until then the same call goes on."""
    save("llama", folder / "dense")
    (folder / "out").mkdir()
    replace = Path.replace

    def killed(self, target):
        if self.name == "sparsefw.json":
            assert {path.name for path in (folder / "dense").iterdir()} <= {p.name for p in target.parent.iterdir()}
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(folder / "dense", folder / "out", client, method="wanda", state_dir=folder / "state")
    assert not (folder / "out/sparsefw.json").exists()
    monkeypatch.setattr(Path, "replace", replace)
    prune(folder / "dense", folder / "out", client, method="wanda", state_dir=folder / "state")
    assert (folder / "out/sparsefw.json").exists()
    assert not [path for path in (folder / "out").iterdir() if path.name.startswith(".")]
    load(folder / "out")


def test_a_link_leads_to_the_folder_that_is_replaced(client, folder):
    save("llama", folder / "dense")
    (folder / "link").symlink_to(folder / "disk/out")
    for pattern in ("2:4", "1:4"):
        prune(folder / "dense", folder / "link", client, method="wanda", pattern=pattern, sparsity=None,
              overwrite=True)
        assert (folder / "link").is_symlink()
        facts = json.loads((folder / "disk/out/sparsefw.json").read_text())
        assert facts["settings"]["pattern"] == pattern
    assert [path.name for path in (folder / "disk").iterdir()] == ["out"]


def test_what_cannot_be_replaced_at_the_end_leaves_both_models(client, folder, monkeypatch):
    save("llama", folder / "dense")
    prune(folder / "dense", folder / "out", client, method="wanda")
    rename = Path.rename

    def busy(self, target):
        if self == (folder / "out").resolve():
            raise OSError(16, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(sparsefw.InvalidArgument, match=r"Device or resource busy; the pruned model is .*partial"):
        prune(folder / "dense", folder / "out", client, method="ria", overwrite=True)
    load(folder / "out")
    (kept,) = folder.glob(".out.partial-*")
    load(kept)


def test_quantised_weights_are_refused(client, folder):
    save("llama", folder / "dense")
    path = folder / "dense/config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    path.write_text(json.dumps(config))
    with pytest.raises(sparsefw.InvalidArgument, match="quantised"):
        prune(folder / "dense", folder / "out", client)


def test_hidden_states_in_a_file_are_the_same(client, folder, monkeypatch):
    from sparsefw.hf.calibration import hidden

    save("llama", folder / "dense", torch.bfloat16)
    prune(folder / "dense", folder / "memory", client)
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    prune(folder / "dense", folder / "file", client, state_dir=folder / "state")
    for path in (folder / "memory").glob("*.safetensors"):
        assert path.read_bytes() == (folder / "file" / path.name).read_bytes()
    assert not list((folder / "state").glob("hidden*"))

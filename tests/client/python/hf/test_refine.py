"""Refinement of blocks: what it lowers, what it leaves as it is, and that nothing of it is lost."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import sparsefw
import tiny
import torch
import transformers
from sparsefw.hf import BlockRefinement, data, prune_model
from sparsefw.hf.calibration import hidden, step
from sparsefw.hf.training import refine, steps
from support.processes import HANG

OPTIONS = {"sparsity": 0.5, "method": "wanda", "progress": False}
REFINE = BlockRefinement(epochs=4, learning_rate=1e-2)


def prune(model, client, **options):
    arguments = {"data": tiny.tokens(count=12), "server": client, **OPTIONS, **options}
    return prune_model(model, **arguments)


def output_error(model, dense, ids):
    """The relative squared error of the logits."""
    with torch.no_grad():
        there, here = (m(input_ids=ids, use_cache=False).logits.float() for m in (dense, model))
    return float((there - here).square().mean() / there.square().mean())


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "gemma3", "mixtral", "qwen3_moe"])
def test_a_refined_model_is_nearer_to_the_dense_one(family, client):
    """Also on sequences that nothing has seen. Zeros stay, and so does all else but norms and biases."""
    dense, plain, refined = (tiny.make(family) for _ in range(3))
    seen, unseen = tiny.tokens(count=24), tiny.tokens(count=12, seed=9)
    prune(plain, client, data=seen)
    report = prune(refined, client, data=seen, refine_blocks=REFINE)
    assert output_error(refined, dense, seen) < output_error(plain, dense, seen)
    assert output_error(refined, dense, unseen) < output_error(plain, dense, unseen)
    assert len(report.refinements) == 2
    for record in report.refinements:
        assert record["error_after"] < record["error_before"]
        assert 0 < record["epoch"] <= record["epochs"] == 4
        assert (record["sequences"], record["held_back"]) == (22, 2)
    for row in report.layers:
        values = tiny.matrix(refined, row["name"])
        assert int((values != 0).sum()) == row["kept"], row["name"]
    pruned = {tiny.split(row["name"])[0] for row in report.layers}
    for name, value in dense.named_parameters():
        after = refined.get_parameter(name)
        assert after.requires_grad == value.requires_grad
        assert after.grad is None
        assert after.dtype == value.dtype
        if name not in pruned:
            refined_too = value.dim() == 1 and any(name.startswith(b["name"]) for b in report.refinements)
            assert torch.equal(after, value) != refined_too, name
    # The mask of the first block is that of the solve: its inputs are the same.
    first = [row["name"] for row in report.layers if row["name"].startswith(report.refinements[0]["name"])]
    for name in first:
        assert torch.equal(tiny.matrix(plain, name) == 0, tiny.matrix(refined, name) == 0)


def test_what_does_not_help_is_not_kept(client):
    """A rate that destroys the block: the state before refinement is the best, and it stays to the bit."""
    plain, refined = tiny.make("llama"), tiny.make("llama")
    prune(plain, client)
    report = prune(refined, client, refine_blocks=BlockRefinement(epochs=2, learning_rate=100.0))
    for record in report.refinements:
        assert record["epoch"] == 0
        assert record["error_after"] == record["error_before"]
    for name, value in plain.named_parameters():
        assert torch.equal(value, refined.get_parameter(name)), name


@pytest.mark.parametrize("ends", [False, True])
def test_a_start_that_is_not_finite_does_not_win(client, monkeypatch, ends):
    """NaN is less than nothing; where every epoch is so, the start is kept."""
    measure, held = refine._Errors.of, []

    def broken(self, *rest):
        found = measure(self, *rest)
        if torch.is_grad_enabled():
            return found
        held.append(1)
        return found if ends and len(held) % 5 != 1 else found * float("nan")  # 4 epochs, one sequence

    monkeypatch.setattr(refine._Errors, "of", broken)
    report = prune(tiny.make("llama"), client, refine_blocks=REFINE)
    for record in report.refinements:
        assert record["error_before"] == float("inf")
        assert (record["epoch"] > 0, record["error_after"] < 100) == (ends, ends)
    assert "2 blocks refined" in str(report)
    assert report.to_dict()["refinements"][0]["error_before"] is None


def test_what_is_ignored_stays(client):
    model = tiny.make("llama")
    before = model.model.layers[1].self_attn.q_proj.weight.detach().clone()
    report = prune(model, client, ignore=["lm_head", "q_proj"], refine_blocks=REFINE)
    assert torch.equal(model.model.layers[1].self_attn.q_proj.weight, before)
    assert len(report.layers) == 12


@pytest.mark.parametrize(
    "family, dtype", [("llama", torch.float32), ("llama", torch.bfloat16), ("gpt2", torch.bfloat16)]
)
def test_a_folder_gets_what_the_model_in_memory_gets(family, dtype, client, folder):
    tiny.make(family, dtype=dtype).save_pretrained(folder / "dense")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "dense", dtype="auto")
    streamed = prune(folder / "dense", client, refine_blocks=REFINE, out=folder / "out")
    report = prune(model, client, refine_blocks=REFINE)
    found = transformers.AutoModelForCausalLM.from_pretrained(folder / "out", dtype="auto")
    assert found.dtype == dtype
    for name, value in model.named_parameters():
        assert torch.equal(value, found.get_parameter(name)), name
    errors = [record["error_after"] for record in report.refinements]
    assert errors == [record["error_after"] for record in streamed.refinements]
    written = json.loads((folder / "out/sparsefw.json").read_text())
    assert written["refinements"] == streamed.refinements
    assert written["settings"]["refine_blocks"] == {"epochs": 4, "learning_rate": 0.01, "held_back": 0.0625}
    assert "2 blocks refined" in str(streamed)


def test_norms_that_have_other_names_on_disk(client, folder):
    """As old checkpoints of BERT have them. The second call loads no block before it writes."""
    torch.manual_seed(1)
    config = transformers.BertConfig(**tiny.COMMON, intermediate_size=48)
    transformers.BertForMaskedLM(config).save_pretrained(folder / "dense")
    path = folder / "dense/model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in safetensors.torch.load_file(path).items()
    }
    safetensors.torch.save_file(old, path, metadata={"format": "pt"})
    for out in ("first", "second"):
        prune(folder / "dense", client, refine_blocks=REFINE, ignore=[r"^cls\."], state_dir=folder / "state",
              out=folder / out)
    first, second = (safetensors.torch.load_file(folder / out / path.name) for out in ("first", "second"))
    assert first.keys() == second.keys() == old.keys()
    changed = {name for name in old if not torch.equal(first[name], old[name])}
    assert any(name.endswith("LayerNorm.gamma") for name in changed)
    for name in old:
        assert torch.equal(first[name], second[name]), name


def test_what_is_neither_a_norm_nor_a_bias_of_a_pruned_matrix_stays(client):
    dense, model = tiny.make("gpt2"), tiny.make("gpt2")
    ignore = ["lm_head", "ln_1", "c_attn"]
    prune(model, client, refine_blocks=REFINE, ignore=ignore)
    for name, value in dense.named_parameters():
        moves = ".h." in name and not any(part in name for part in ignore)
        assert torch.equal(model.get_parameter(name), value) != moves, name


def test_a_float32_norm_in_a_bfloat16_folder_keeps_its_bits_where_nothing_moved(client, folder):
    """Loaded it is bfloat16; steps so small move weights, and no norm by half of its last bit."""
    tiny.make("llama", dtype=torch.bfloat16).save_pretrained(folder / "dense")
    path = folder / "dense/model.safetensors"
    tensors = safetensors.torch.load_file(path)
    norm = "model.layers.0.input_layernorm.weight"
    tensors[norm] = tensors[norm].float() + 2.0**-12
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    settings = BlockRefinement(epochs=1, learning_rate=1e-4)
    report = prune(folder / "dense", client, refine_blocks=settings, out=folder / "out")
    assert report.refinements[0]["epoch"] == 1, "the refined state is kept, with its norms"
    written = safetensors.torch.load_file(folder / "out" / path.name)
    assert torch.equal(written[norm], tensors[norm])


def test_every_step_keeps_zeros_and_the_best_state_counts(client, monkeypatch):
    """Errors that were reported are those of the states, in the model's own precision."""
    seen, states = [], []
    write, refined = steps.Training.write, refine.refine_block

    def written(self):
        write(self)
        states.append({name: self._module.get_parameter(name).detach().clone() for name in self._weights})

    def watched(*arguments):
        arguments = list(arguments)
        show = arguments[6]
        arguments[6] = lambda epoch, error: (seen.append((epoch, error)), show(epoch, error))
        return refined(*arguments)

    monkeypatch.setattr(steps.Training, "write", written)
    monkeypatch.setattr(step, "refine_block", watched)
    model = tiny.make("llama", dtype=torch.bfloat16)
    report = prune(model, client, refine_blocks=REFINE)
    assert [epoch for epoch, _ in seen] == [0, 1, 2, 3, 4] * 2
    for block, record in enumerate(report.refinements):
        errors = [error for _, error in seen[5 * block : 5 * block + 5]]
        assert record["error_before"] == errors[0]
        assert record["error_after"] == min(errors) == errors[record["epoch"]]
        of_block = states[4 * block : 4 * block + 4]
        zeros = {name: value == 0 for name, value in of_block[0].items()}
        for state in of_block:
            for name, value in state.items():
                assert value.dtype == torch.bfloat16
                assert bool((value[zeros[name]] == 0).all())
        final = of_block[record["epoch"] - 1]
        for name, value in final.items():
            assert torch.equal(value, model.model.layers[block].get_parameter(name))


def test_a_block_that_is_kept_as_it_was_keeps_its_bits(client, folder):
    """In a folder with two dtypes: one tensor of float32 among bfloat16."""
    model = tiny.make("llama", dtype=torch.bfloat16)
    model.save_pretrained(folder / "dense")
    path = folder / "dense/model.safetensors"
    tensors = safetensors.torch.load_file(path)
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[name] = tensors[name].float() + 1e-4 * torch.rand(tensors[name].shape)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    harmful = BlockRefinement(epochs=1, learning_rate=100.0)
    report = prune(folder / "dense", client, refine_blocks=harmful, out=folder / "out")
    assert [record["epoch"] for record in report.refinements] == [0, 0]
    out = safetensors.torch.load_file(folder / "out/model.safetensors")[name]
    assert out.dtype == torch.float32
    assert torch.equal(out[out != 0], tensors[name][out != 0])
    assert int((out != 0).sum()) == tensors[name].numel() // 2


def test_hidden_states_in_files(client, folder, monkeypatch):
    in_memory, in_files = (tiny.make("llama", dtype=torch.bfloat16) for _ in range(2))
    prune(in_memory, client, refine_blocks=REFINE)
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    prune(in_files, client, refine_blocks=REFINE, state_dir=folder / "state")
    for name, value in in_memory.named_parameters():
        assert torch.equal(value, in_files.get_parameter(name)), name


def same(folder):
    """What the same run writes into any folder: every byte, but times and the folder in sparsefw.json."""

    def timeless(value):
        if isinstance(value, dict):
            return {key: timeless(part) for key, part in value.items() if key not in ("seconds", "out")}
        return [timeless(part) for part in value] if isinstance(value, list) else value

    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    assert {Path("model.safetensors"), Path("config.json"), Path("README.md")} < files.keys()
    manifest = timeless(json.loads(files.pop(Path("sparsefw.json")).read_text()))
    return {name: path.read_bytes() for name, path in files.items()}, manifest


def test_resumed_between_and_within_blocks(client, folder):
    tiny.make("llama", num_hidden_layers=4).save_pretrained(folder / "dense")
    arguments = {"refine_blocks": REFINE, "state_dir": folder / "state"}
    first = prune(folder / "dense", client, out=folder / "whole", **arguments)
    (folder / "state/block-0001.json").unlink()
    (folder / "state/block-0003.json").unlink()
    second = prune(folder / "dense", client, out=folder / "again", **arguments)
    whole, again = (folder / name / "model.safetensors" for name in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()

    def without_seconds(report):
        return [{**record, "seconds": 0} for record in report.refinements]

    assert without_seconds(first) == without_seconds(second)
    third = prune(folder / "dense", client, out=folder / "third", **arguments)
    assert third.refinements == second.refinements
    with pytest.raises(sparsefw.FailedPrecondition, match=r"refine_blocks was \{.*is null"):
        prune(folder / "dense", client, state_dir=folder / "state")


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import tiny, torch
from sparsefw.hf import BlockRefinement, data, prune_model
from sparsefw.hf.calibration import hidden
from sparsefw.hf.training import refine, steps
torch.set_num_threads(1)
write, left = steps.Training.write, [int(sys.argv[6])]

def dies(self):
    write(self)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

steps.Training.write = dies
prune_model(sys.argv[2], data=tiny.tokens(count=12), server=sys.argv[3], state_dir=sys.argv[4], out=sys.argv[5],
            sparsity=0.5, method="wanda", progress=False,
            refine_blocks=BlockRefinement(epochs=4, learning_rate=1e-2))
"""


def test_kills_in_the_middle_of_a_refinement(client, shared_server, folder):
    """After an epoch of the first block, then of the second: the same call ends with the same folder."""
    tiny.make("llama").save_pretrained(folder / "dense")
    prune(folder / "dense", client, refine_blocks=REFINE, out=folder / "expected")
    words = [Path(tiny.__file__).parent, folder / "dense", shared_server.address, folder / "state", folder / "out"]
    for writes, status in ((2, -signal.SIGKILL), (6, -signal.SIGKILL), (99, 0)):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *map(str, words), str(writes)], capture_output=True, text=True,
            timeout=HANG, check=False)
        assert done.returncode == status, done.stderr
    assert same(folder / "out") == same(folder / "expected")


@pytest.mark.parametrize("returns", [True, False])
def test_the_server_is_killed_in_the_middle_of_a_refinement(returns, restartable, client, folder, monkeypatch):
    """After an epoch of the first block. One that comes back is not missed; without one the call ends with an
    error, and the same call later goes on.
    """
    tiny.make("llama").save_pretrained(folder / "dense")
    prune(folder / "dense", client, refine_blocks=REFINE, out=folder / "expected")
    server = restartable()
    options = sparsefw.Options(retry=sparsefw.Retry(initial_backoff=0.02, max_backoff=0.1, give_up_after=2))
    write, writes = steps.Training.write, []

    def dies(self):
        write(self)
        writes.append(1)
        if len(writes) == 1:
            server.kill()
            if returns:
                server.again()

    monkeypatch.setattr(steps.Training, "write", dies)
    arguments = {"refine_blocks": REFINE, "state_dir": folder / "state", "out": folder / "out"}
    with sparsefw.connect(server.address, options=options) as mine:
        if not returns:
            with pytest.raises(sparsefw.Unavailable):
                prune(folder / "dense", mine, **arguments)
            assert len(writes) == 4, "the first block is finished, the second has no server"
            server.again()
        prune(folder / "dense", mine, **arguments)
    assert len(writes) == 8, "no block is refined twice"
    assert same(folder / "out") == same(folder / "expected")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"refine_blocks": True, "propagate": False}, "refine_blocks needs propagate=True"),
        ({"refine_blocks": True, "data": tiny.tokens(count=1)}, "at least two sequences.*got 1"),
        ({"refine_blocks": "yes"}, "a BlockRefinement or a dictionary of what it has; got yes"),
    ],
)
def test_what_cannot_be_refined_is_refused(client, options, words):
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune(tiny.make("llama"), client, **options)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"epochs": 0}, "epochs .* at least 1; got 0"),
        ({"epochs": 1.5}, "epochs .* integer .*; got 1.5"),
        ({"epochs": True}, "epochs .* integer .*; got True"),
        ({"learning_rate": 0.0}, "learning_rate .* must be finite and above 0; got 0"),
        ({"learning_rate": float("nan")}, "learning_rate .*got nan"),
        ({"held_back": 0.0}, r"held_back .* must be in \(0, 0.5\]; got 0"),
        ({"held_back": 0.6}, "held_back .*got 0.6"),
    ],
)
def test_settings_are_checked(values, words):
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        BlockRefinement(**values)


def test_blocks_that_share_weights_are_refused(client):
    model = tiny.make("llama")
    layers = model.model.layers
    layers[1].mlp.up_proj.weight = layers[0].mlp.up_proj.weight
    words = r"model\.layers\.1\.mlp\.up_proj\.weight belongs to block 0 too"
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune(model, client, refine_blocks=True)


def test_sequences_that_are_held_back():
    for count in range(2, 70):
        for few in range(1, count // 2 + 1):
            used, held = data.hold_back(count, few)
            assert sorted(used + held) == list(range(count))
            assert len(held) == few


@pytest.mark.parametrize(("count", "few"), [(2, 1), (16, 1), (40, 2)])
def test_a_share_of_the_sequences_is_held_back(count, few, client):
    report = prune(tiny.make("llama"), client, data=tiny.tokens(count=count), refine_blocks=BlockRefinement(epochs=1))
    assert [(one["sequences"], one["held_back"]) for one in report.refinements] == [(count - few, few)] * 2

"""Distillation of a pruned model: what it lowers, what it leaves as it is, and that nothing of it is lost."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sparsefw
import tiny
import torch
import transformers
from sparsefw.hf import Distillation, prune_model
from sparsefw.hf.state import State
from sparsefw.hf.training import distill
from support.processes import HANG

OPTIONS = {"sparsity": 0.5, "method": "wanda", "progress": False}
DISTILL = Distillation(epochs=6, learning_rate=3e-3)


def prune(model, client, **options):
    arguments = {"data": tiny.tokens(count=12), "server": client, **OPTIONS, **options}
    return prune_model(model, **arguments)


def divergence(model, dense, ids):
    """KL(dense || model), nats a token, with PyTorch's own function."""
    with torch.no_grad():
        there, here = (m(input_ids=ids, use_cache=False).logits.log_softmax(-1) for m in (dense, model))
    found = torch.nn.functional.kl_div(here, there, reduction="none", log_target=True)
    return float(found.sum(-1).mean())


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3", "qwen3_moe"])
def test_a_distilled_model_predicts_more_as_the_dense_one_does(family, client):
    """Also on sequences that nothing has seen. Zeros stay, and so does all that is not trained."""
    dense, plain, distilled = (tiny.make(family) for _ in range(3))
    prune(plain, client)
    report = prune(distilled, client, distill=DISTILL)
    for ids in (tiny.tokens(count=12), tiny.tokens(count=12, seed=9)):
        assert divergence(distilled, dense, ids) < divergence(plain, dense, ids)
    record = report.distillation
    assert record["divergence_after"] < record["divergence_before"]
    assert (record["kept"], record["epochs"], record["sequences"], record["held_back"]) == ("end", 6, 11, 1)
    assert "model distilled" in str(report)
    for row in report.layers:
        values = tiny.matrix(distilled, row["name"])
        assert torch.equal(values == 0, tiny.matrix(plain, row["name"]) == 0), row["name"]
    pruned = {tiny.split(row["name"])[0] for row in report.layers}
    blocks = tuple(re.match(r".*?\.\d+\.", row["name"])[0] for row in report.layers)
    changed = 0
    for name, value in dense.named_parameters():
        after = distilled.get_parameter(name)
        assert (after.requires_grad, after.dtype, after.grad) == (value.requires_grad, value.dtype, None)
        if name in pruned:
            changed += not torch.equal(after, plain.get_parameter(name))
        elif value.dim() > 1 or not name.startswith(blocks):
            assert torch.equal(after, value), name
    assert changed == len(pruned)


def test_the_gradient_is_that_of_the_divergence():
    """Over more positions than are taken at a time; the loss is that of PyTorch."""
    torch.manual_seed(0)
    logits, wanted = (torch.randn(1, 300, 17, dtype=torch.float32) for _ in range(2))
    found, gradient = distill.divergence(logits, wanted, gradient=True)
    logits.requires_grad_()
    loss = torch.nn.functional.kl_div(
        logits.log_softmax(-1), wanted.log_softmax(-1), reduction="sum", log_target=True) / 300
    loss.backward()
    assert found == pytest.approx(float(loss.detach()), rel=1e-6)
    torch.testing.assert_close(gradient, logits.grad)
    assert distill.divergence(logits.detach(), wanted) == (found, None)


def test_tokens_that_both_models_rule_out_count_nothing():
    """Their logits are -inf, as of padding in a vocabulary. The divergence is that over the other tokens."""
    torch.manual_seed(0)
    logits, wanted = torch.randn(2, 1, 5, 17)
    expected, gradient = distill.divergence(logits[..., :12], wanted[..., :12], gradient=True)
    logits[..., 12:] = wanted[..., 12:] = -float("inf")
    found, all_of_it = distill.divergence(logits, wanted, gradient=True)
    assert found == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(all_of_it, torch.nn.functional.pad(gradient, (0, 5)))
    logits[..., 12:] = 0.0
    assert distill.divergence(logits, wanted)[0] > expected, "what only the dense model rules out"


def test_steps_that_do_harm_are_taken_back(client, folder):
    plain, distilled = tiny.make("llama"), tiny.make("llama")
    prune(plain, client)
    harmful = {"epochs": 1, "learning_rate": 100.0}
    report = prune(distilled, client, distill=harmful, state_dir=folder / "state")
    record = report.distillation
    assert record["kept"] == "start" and record["divergence_after"] == record["divergence_before"]
    assert "taken back" in str(report)
    for name, value in plain.named_parameters():
        assert torch.equal(value, distilled.get_parameter(name)), name
    again = tiny.make("llama")
    assert prune(again, client, distill=harmful, state_dir=folder / "state").distillation == record
    for name, value in plain.named_parameters():
        assert torch.equal(value, again.get_parameter(name)), name


@pytest.mark.parametrize(("after", "kept"), [(1.05, "end"), (1.2, "start")])
def test_a_little_more_divergence_on_few_sequences_is_no_harm(client, monkeypatch, after, kept):
    measure, values = distill.divergence, [after, 1.0]

    def fixed(logits, wanted, gradient=False):
        return measure(logits, wanted, gradient) if gradient else (values.pop(), None)

    monkeypatch.setattr(distill, "divergence", fixed)
    record = prune(tiny.make("llama"), client, distill={"epochs": 1}).distillation
    assert record["kept"] == kept
    assert record["divergence_after"] == (after if kept == "end" else 1.0)


@pytest.mark.parametrize(
    ("dtype", "block"),
    [(torch.float32, r"layers\.1\."), (torch.bfloat16, r"layers\.1\."), (torch.float32, r"layers\.1\..*proj")])
def test_a_folder_gets_what_the_model_in_memory_gets(dtype, block, client, folder):
    """Refined, too; a layer and a whole block stay dense, the last one, also where its norms are not ignored."""
    tiny.make("llama", dtype=dtype).save_pretrained(folder / "dense")
    arguments = {"distill": DISTILL, "refine_blocks": {"epochs": 1}, "ignore": ["q_proj", block]}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "dense", dtype="auto")
    streamed = prune(folder / "dense", client, out=folder / "out", **arguments)
    report = prune(model, client, state_dir=folder / "state", **arguments)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder / "dense", dtype="auto")
    prune(again, client, state_dir=folder / "state", **arguments)
    assert tiny.same(model, again)
    found = transformers.AutoModelForCausalLM.from_pretrained(folder / "out", dtype="auto")
    assert found.dtype == dtype
    for name, value in model.named_parameters():
        assert torch.equal(value, found.get_parameter(name)), name
    assert report.distillation["kept"] == "end"
    assert report.distillation["divergence_after"] == streamed.distillation["divergence_after"]
    written = json.loads((folder / "out/sparsefw.json").read_text())
    assert written["distillation"] == streamed.distillation
    assert written["settings"]["distill"] == {"epochs": 6, "learning_rate": 3e-3, "held_back": 0.0625}


def test_a_start_that_is_not_finite_does_not_win(client, folder, monkeypatch):
    """NaN is less than nothing. In JSON, which has no such numbers, it is null."""
    measure, held = distill.divergence, []

    def broken(logits, wanted, gradient=False):
        if not gradient:
            held.append(1)
        return measure(logits, wanted, gradient) if gradient or len(held) > 1 else (float("nan"), None)

    monkeypatch.setattr(distill, "divergence", broken)
    report = prune(tiny.make("llama"), client, distill=DISTILL, out=folder / "out")
    assert report.distillation["kept"] == "end"
    assert 0 < report.distillation["divergence_after"] < 100
    report.save(folder / "report.json")
    for path in (folder / "out/sparsefw.json", folder / "report.json"):
        found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
        assert found["distillation"]["divergence_before"] is None
    assert "model distilled" in str(report)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import tiny, torch
from sparsefw.hf import prune_model, state
from sparsefw.hf.training import steps
torch.set_num_threads(1)
where, left = sys.argv[6], [int(sys.argv[7])]
owner = steps.Training if where == "write" else state.State
original = getattr(owner, where)

def dies(self, *rest):
    original(self, *rest)
    if where == "write" or "distilled" in rest:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, where, dies)
prune_model(sys.argv[2], data=tiny.tokens(count=12), server=sys.argv[3], state_dir=sys.argv[4], out=sys.argv[5],
            sparsity=0.5, method="wanda", progress=False, distill={"epochs": 6, "learning_rate": 3e-3})
"""


def test_kills_in_the_middle_of_a_distillation(client, shared_server, folder):
    """After an epoch, and after one block of the outcome: the same call ends with the same folder. The second
    and later calls need no server.
    """
    tiny.make("llama").save_pretrained(folder / "dense")
    prune(folder / "dense", client, distill=DISTILL, out=folder / "expected")
    here, dense, state, out = Path(tiny.__file__).parent, folder / "dense", folder / "state", folder / "out"
    server = shared_server.address
    for where, writes, status in (("write", 2, -signal.SIGKILL), ("save_block", 1, -signal.SIGKILL), ("write", 99, 0)):
        words = [here, dense, server, state, out, where, writes]
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *map(str, words)], capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == status, done.stderr
        server = "127.0.0.1:1"
    expected, found = (folder / name / "model.safetensors" for name in ("expected", "out"))
    assert found.read_bytes() == expected.read_bytes()


def test_a_finished_distillation_is_kept_and_a_damaged_one_done_again(client, folder, monkeypatch):
    arguments = {"distill": DISTILL, "state_dir": folder / "state"}
    first = tiny.make("llama")
    record = prune(first, client, **arguments).distillation

    def same(model):
        return all(torch.equal(value, model.get_parameter(name)) for name, value in first.named_parameters())

    again = tiny.make("llama")
    with monkeypatch.context() as patch:  # nor is memory for another one asked for
        patch.setattr(distill, "_free", lambda device: 1000)
        assert prune(again, client, **arguments).distillation == record, "with its seconds: nothing was done"
    assert same(again)
    for damaged in ("distilled-0001.safetensors", "block-0000.safetensors"):
        path = folder / "state" / damaged
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
        again = tiny.make("llama")
        with monkeypatch.context() as patch:  # it is done again, so that memory is asked for
            patch.setattr(distill, "_free", lambda device: 1000)
            with pytest.raises(sparsefw.InvalidArgument, match="needs all of the model in memory"):
                prune(tiny.make("llama"), client, **arguments)
        done = prune(again, client, **arguments).distillation
        assert {**done, "seconds": 0} == {**record, "seconds": 0}
        assert done["seconds"] != record["seconds"]
        assert same(again)
    with pytest.raises(sparsefw.FailedPrecondition, match=r"distill was \{.*is null"):
        prune(tiny.make("llama"), client, state_dir=folder / "state")


def test_half_of_a_second_distillation_does_not_count(client, folder, monkeypatch):
    """The first one is forgotten before the second one writes its blocks."""
    arguments = {"distill": DISTILL, "state_dir": folder / "state"}
    prune(tiny.make("llama"), client, **arguments)
    path = folder / "state" / "block-0000.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    original = State.save_block

    def stopped(self, index, block, what="block"):
        original(self, index, block, what)
        if what == "distilled":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(State, "save_block", stopped)
        prune(tiny.make("llama"), client, **arguments)
    assert not (folder / "state" / "distillation.json").exists()


def test_the_report_says_which_versions_distilled(client, folder):
    """Another one than pruned: the package was updated in between."""
    arguments = {"distill": {"epochs": 1}, "state_dir": folder / "state"}
    first = prune(tiny.make("llama"), client, **arguments)
    assert first.versions["sparsefw"] == sparsefw.__version__
    path = folder / "state/distillation.json"
    record = json.loads(path.read_text())
    record["versions"] |= {"sparsefw": "0.0.9", "server": "0.0.9"}
    path.write_text(json.dumps(record))
    again = prune(tiny.make("llama"), client, **arguments)
    assert again.versions["sparsefw"] == f"{sparsefw.__version__} (blocks 0-1), 0.0.9 (distillation)"
    assert again.versions["server"] == first.versions["server"], "it takes no part in it"


def test_the_winner_of_a_tuning_is_distilled(client):
    candidates = [{"method": "magnitude"}, {"method": "wanda"}]
    report = prune(tiny.make("llama"), client, tune=candidates, distill={"epochs": 1})
    assert report.distillation["epochs"] == 1
    with pytest.raises(sparsefw.InvalidArgument, match="candidates must share distill; give it to the call"):
        prune(tiny.make("llama"), client, tune=[{"distill": True}, {}])


def test_wrong_arguments(client, monkeypatch):
    model = tiny.make("llama")
    for value, text in (
        ("yes", "distill must be True, False, None, a Distillation or a dictionary of what it has; got yes"),
        ({"rate": 1}, "a Distillation has no rate"),
        ({"epochs": 0}, "epochs of a Distillation must be an integer of at least 1; got 0"),
    ):
        with pytest.raises(sparsefw.InvalidArgument, match=text):
            prune(model, client, distill=value)
    with pytest.raises(sparsefw.InvalidArgument, match="distill needs at least two sequences.*got 1"):
        prune(model, client, distill=True, data=tiny.tokens(count=1))
    for arguments, asks in (({"distill": True}, "distill"), ({"preset": "best", "method": None}, 'preset "best"')):
        with monkeypatch.context() as patch:
            patch.setattr(distill, "_free", lambda device: 1000)
            with pytest.raises(
                sparsefw.InvalidArgument, match=rf"{asks}.* needs all of the model in memory: .* GiB on cpu"
            ):
                prune(model, client, **arguments)
    before = tiny.make("llama")
    assert all(torch.equal(value, before.get_parameter(name)) for name, value in model.named_parameters())


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_that_is_asked_for(dtype, tied, half, monkeypatch):
    """Enough is enough, a byte less is not; a folder needs its weights besides. Weights that are not trained
    are converted to float32 where they are not. Where products are bfloat16, backward keeps such a copy of
    every matrix that multiplies, the head's too.
    """
    monkeypatch.setattr(distill, "multiplies_bfloat16", lambda kind: half and kind == "cpu")
    model = tiny.make("llama", dtype=dtype, tie_word_embeddings=tied)
    layout = sparsefw.hf.work.layout_of(model, ["lm_head"])
    trained = sum(
        model.get_submodule(block.name).get_parameter(name).numel() for block in layout for name in block.trained)
    count = sum(value.numel() for value in model.parameters())
    whole = count * dtype.itemsize
    steps_take = trained * (17 + dtype.itemsize) + (0 if dtype == torch.float32 else 4 * (count - trained))
    if half:
        matrices = sum(value.numel() for value in model.parameters() if value.dim() > 1)
        steps_take += 2 * (matrices if tied else matrices - model.get_input_embeddings().weight.numel())
    for device, size in ((None, steps_take), ("cpu", steps_take + whole)):
        monkeypatch.setattr(distill, "_free", lambda _, size=size: size)
        distill.check_memory(model, layout, device, "it")
        monkeypatch.setattr(distill, "_free", lambda _, size=size: size - 1)
        with pytest.raises(sparsefw.InvalidArgument, match="it needs all of the model in memory"):
            distill.check_memory(model, layout, device, "it")

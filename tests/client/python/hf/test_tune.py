"""Settings chosen by the model's own loss: what is measured, that nothing is changed, and what is refused."""

import json

import numpy as np
import pytest
import sparsefw
import tiny
import torch
import transformers
from sparsefw import _cli
from sparsefw.hf import BlockRefinement, Tuning, prune_model, run, source, tune, tuning
from sparsefw.hf.calibration import grams, hidden, step
from sparsefw.hf.pools import servers
from sparsefw.hf.training import distill
from test_programs import TEXT, tokenizer

CANDIDATES = [
    {"method": "magnitude"},
    {"method": "wanda", "refine_blocks": BlockRefinement(epochs=2, learning_rate=1e-2)},
    {"alpha": 0.5, "iterations": 20},
]
COMMON = {"sparsity": 0.5, "progress": False}


def tokens(count=12):
    return tiny.tokens(count=count)


def losses_of(model, windows):
    """With transformers' own loss."""
    with torch.no_grad():
        return [float(model(input_ids=ids[None], labels=ids[None]).loss) for ids in windows]


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "gemma3", "qwen3_moe"])
def test_losses_are_those_of_models_that_were_pruned_so(family, client):
    """Independently: the later blocks are named in `ignore`, and transformers evaluates the model."""
    more = {"gpt2": {"n_layer": 3}, "gemma3": {}}
    model = tiny.make(family, **more.get(family, {"num_hidden_layers": 3}))
    before = weights(model)
    found = tune(model, data=tokens(), server=client, candidates=CANDIDATES, blocks=1, **COMMON)
    for name, value in before.items():
        assert torch.equal(value, model.get_parameter(name)), name
    seen, held = tuning.split(12, 0.25)
    windows = [tokens()[index] for index in held]
    assert found.windows == len(windows) == 3
    assert found.dense_loss == pytest.approx(sum(losses_of(model, windows)) / 3, rel=1e-5)
    for candidate, row in zip(CANDIDATES, found.candidates, strict=True):
        with torch.no_grad():
            for name, value in before.items():
                model.get_parameter(name).copy_(value)
        prune_model(
            model, data=tokens()[seen], server=client, **COMMON, **candidate,
            ignore=["lm_head", r"(layers|h)\.[12]\."])
        assert row["losses"] == pytest.approx(losses_of(model, windows), rel=1e-4)
        assert row["loss"] == pytest.approx(sum(row["losses"]) / 3)
        assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    best = min(row["loss"] for row in found.candidates)
    assert found.candidates[found.chosen]["loss"] == best
    assert found.candidates[found.chosen]["difference"] == 0
    assert found.best == tuning.described(CANDIDATES[found.chosen])


def test_a_candidate_that_names_nothing_has_the_preset_that_its_run_would_have(client):
    """The default preset, with its refinement; one that distils is judged without."""
    model = tiny.make("llama")
    candidates = [{}, {"preset": "best", "refine_blocks": {"epochs": 1}}]
    found = tune(model, data=tokens(), server=client, candidates=candidates, blocks=1, **COMMON)
    seen, held = tuning.split(12, 0.25)
    for candidate, row in zip(candidates, found.candidates, strict=True):
        alone = tiny.make("llama")
        report = prune_model(
            alone, data=tokens()[seen], server=client, ignore=["lm_head", r"layers\.1\."], **COMMON,
            **(candidate and {**candidate, "distill": False}))
        assert len(report.refinements) == 1
        assert row["losses"] == pytest.approx(losses_of(alone, [tokens()[index] for index in held]), rel=1e-4)


def test_tune_alone_needs_no_memory_for_a_distillation_that_it_does_not_do(client, monkeypatch):
    monkeypatch.setattr(distill, "_free", lambda device: 1000)
    options = {"data": tokens(), "server": client, **COMMON}
    fast = {"refine_blocks": {"epochs": 1}}
    candidates = [{"preset": "best", **fast}, {"method": "magnitude"}]
    assert len(tune(tiny.make("llama"), candidates=candidates, **options).candidates) == 2
    with pytest.raises(sparsefw.InvalidArgument, match=r'preset "best".* needs all of the model in memory'):
        prune_model(tiny.make("llama"), tune=candidates, **options)


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_gives_what_the_model_in_memory_gives(tied, client, folder):
    model = tiny.make("llama", tie_word_embeddings=tied)
    model.save_pretrained(folder / "dense")
    options = {"data": tokens(), "server": client, "candidates": CANDIDATES, "blocks": 1, **COMMON}
    here, there = tune(model, **options), tune(folder / "dense", **options)
    assert [row["losses"] for row in here.candidates] == [row["losses"] for row in there.candidates]
    assert here.dense_loss == there.dense_loss
    assert "1 blocks pruned" in str(there)


def test_the_winner_prunes_the_whole_model_with_all_text(client, folder):
    chosen, direct = tiny.make("llama"), tiny.make("llama")
    report = prune_model(
        chosen, data=tokens(), server=client, tune=CANDIDATES, out=folder / "out", method="magnitude", **COMMON)
    winner = CANDIDATES[report.tuning["chosen"]]
    prune_model(direct, data=tokens(), server=client, **{"method": "magnitude", **COMMON, **winner})
    for name, value in direct.named_parameters():
        assert torch.equal(value, chosen.get_parameter(name)), name
    written = json.loads((folder / "out/sparsefw.json").read_text())
    assert written["tuning"] == report.tuning
    assert written["settings"]["tune"]["candidates"] == [tuning.described(one) for one in CANDIDATES]
    assert "the best of 3 candidates on 3 held-back windows" in str(report)


@pytest.mark.parametrize("gram", ["client", "auto"])
def test_the_first_blocks_gram_matrices_are_summed_once(client, monkeypatch, gram):
    """With "auto" these activations are fewer bytes than the Gram matrices, and would be sent for every candidate."""
    sums = []
    monkeypatch.setattr(
        step, "sum_grams", lambda *args, **named: (sums.append(1), grams.sum_grams(*args, **named))[1])
    streamed = []
    stream = servers.Servers.stream_gram
    monkeypatch.setattr(
        servers.Servers, "stream_gram", lambda self, key, *rest: (streamed.append(key), stream(self, key, *rest))[1])
    few = tiny.tokens(count=4, length=4)
    tune(tiny.make("llama"), data=few, server=client, candidates=CANDIDATES, blocks=2, gram=gram, **COMMON)
    assert len(sums) == (1 + len(CANDIDATES) if gram == "client" else 1)
    assert bool(streamed) is (gram == "auto")


def test_goes_on_after_an_end(client, folder, monkeypatch):
    """In the middle of the second candidate; what was finished is not done again."""
    options = {"data": tokens(), "server": client, "tune": Tuning(CANDIDATES, blocks=2), **COMMON}
    expected = tiny.make("llama")
    prune_model(expected, **options)
    solved = []
    solve = run.Run._solve

    def stops(self, pool, step, *rest):
        solved.append(step.layout.index)
        if len(solved) == 4:
            raise KeyboardInterrupt
        return solve(self, pool, step, *rest)

    monkeypatch.setattr(run.Run, "_solve", stops)
    model = tiny.make("llama")
    with pytest.raises(KeyboardInterrupt):
        prune_model(model, state_dir=folder / "state", **options)
    for name, value in tiny.make("llama").named_parameters():
        assert torch.equal(value, model.get_parameter(name)), f"{name} is dense again"
    solved[:] = [0] * 4  # no more interrupts
    report = prune_model(model, state_dir=folder / "state", **options)
    assert solved[4:] == [1, 0, 1, 0, 1], "the rest of the second, the third, the whole model"
    for name, value in expected.named_parameters():
        assert torch.equal(value, model.get_parameter(name)), name
    assert {path.name for path in (folder / "state").iterdir()} >= {"manifest.json", "tuning.json"}
    assert not (folder / "state/tuning").exists()
    solved.clear()
    again = prune_model(tiny.make("llama"), state_dir=folder / "state", **options)
    assert again.tuning == report.tuning
    assert solved == []
    with pytest.raises(sparsefw.FailedPrecondition, match="tune"):
        prune_model(tiny.make("llama"), state_dir=folder / "state", **{**options, "tune": CANDIDATES[:2]})


def while_judging(patch, module, name, function):
    """The module has the function only while candidates are judged, not while they prune."""
    judge = tuning._losses

    def judged(*arguments):
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(module, name, function)
            return judge(*arguments)

    patch.setattr(tuning, "_losses", judged)


@pytest.mark.parametrize("place", [(step, "run_block"), (tuning, "after_blocks")])
def test_an_end_while_candidates_are_judged_leaves_the_model_as_it_was(place, client, folder, monkeypatch):
    model = tiny.make("llama")
    before = weights(model)
    calls = []
    real = getattr(*place)

    def stops(*arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    options = {"data": tokens(), "server": client, "candidates": CANDIDATES, "blocks": 2, **COMMON}
    while_judging(monkeypatch, *place, stops)
    with pytest.raises(KeyboardInterrupt):
        tune(model, state_dir=folder / "state", **options)
    for name, value in before.items():
        assert torch.equal(value, model.get_parameter(name)), name
    found = tune(model, state_dir=folder / "state", **options)
    assert found.candidates[0]["losses"] == tune(model, **options).candidates[0]["losses"]


def test_a_model_that_overflows_is_the_worst(client):
    model = tiny.make("llama", dtype=torch.float16)
    seen = []
    real = step.apply

    def overflows(block, layout, tensors):
        real(block, layout, tensors)
        seen.append(1)
        if len(seen) == 1:
            block.mlp.down_proj.weight.detach().fill_(6e4)

    with pytest.MonkeyPatch.context() as patch:
        while_judging(patch, step, "apply", overflows)
        found = tune(
            model, data=tokens(), server=client, candidates=[{"method": "wanda"}, {"method": "magnitude"}], blocks=1,
            **COMMON)
        assert found.chosen == 1
        assert found.candidates[0]["loss"] == float("inf")
        assert "inf" in str(found)
    with pytest.MonkeyPatch.context() as patch:
        while_judging(patch, step, "apply", lambda block, *_: block.mlp.down_proj.weight.detach().fill_(6e4))
        with pytest.raises(sparsefw.InvalidArgument, match="no candidate of tune leaves a model with a finite loss"):
            tune(model, data=tokens(), server=client, candidates=[{}, {"method": "magnitude"}], blocks=1, **COMMON)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_losses_that_are_not_finite(bad, folder):
    """A single window that overflows makes a candidate the worst; JSON has None for it."""
    tried, facts = Tuning([{"alpha": 0}, {"alpha": 1}]), [{"sparsity": 0.5, "seconds": 1.0}] * 2
    found = tuning._table(tried, [[1, 1], [bad, 1], [1, 9]], facts, ["layers.0"])
    assert found.chosen == 1 and found.candidates[0]["loss"] == float("inf")
    found.save(folder / "tuned.json")
    kept = json.loads((folder / "tuned.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert kept == json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert kept["candidates"][0]["losses"] == [None, 1] and kept["candidates"][1]["loss"] == 5
    with pytest.raises(sparsefw.InvalidArgument, match="no candidate of tune leaves a model with a finite loss"):
        tuning._table(tried, [[1, 1], [bad, 1], [bad, 1]], facts, ["layers.0"])


def test_a_candidate_loads_no_block_behind_its_last(client, folder, monkeypatch):
    tiny.make("llama", num_hidden_layers=6).save_pretrained(folder / "dense")
    loaded = []
    real = source.Streamed.block

    def block(self, index):
        loaded.append(index)
        return real(self, index)

    monkeypatch.setattr(source.Streamed, "block", block)
    tune(folder / "dense", data=tokens(), server=client, candidates=CANDIDATES, blocks=1, **COMMON)
    assert loaded.count(5) == 1, "the last one: where all candidates are judged"
    assert loaded.count(3) == 2, "and once to see that blocks depend on nothing but hidden states"


def test_hidden_states_in_files(client, folder, monkeypatch):
    options = {"data": tokens(), "server": client, "candidates": CANDIDATES, "blocks": 1, **COMMON}
    in_memory = tune(tiny.make("llama", dtype=torch.bfloat16), **options)
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    in_files = tune(tiny.make("llama", dtype=torch.bfloat16), state_dir=folder / "state", **options)
    assert [row["losses"] for row in in_files.candidates] == [row["losses"] for row in in_memory.candidates]


def test_the_order_of_rules_is_part_of_the_run(client, folder):
    def run_with(rules):
        options = {"candidates": [{"allocation": rules}, {}], "state_dir": folder / "state"}
        tune(tiny.make("llama"), data=tokens(), server=client, method="magnitude", blocks=1, **options, **COMMON)

    run_with({"layers": 0.4, "q_proj": 0.6})
    with pytest.raises(sparsefw.FailedPrecondition, match="tune"):
        run_with({"q_proj": 0.6, "layers": 0.4})


def test_numbers_of_numpy(client):
    found = tune(
        tiny.make("llama"), data=tokens(), server=client, blocks=np.int64(1), **COMMON,
        candidates=[
            {"iterations": np.arange(8)[5], "alpha": np.float32(0.5)},
            {"method": "wanda", "refine_blocks": BlockRefinement(np.int64(1), np.float32(0.5))},
        ])  # fmt: skip
    assert json.loads(json.dumps(found.to_dict()))["candidates"][0]["options"] == {"iterations": 5, "alpha": 0.5}


def test_rules_of_allocation_for_later_blocks(client):
    rules = {r"layers\.0": 0.4, r"layers\.1": 0.6}
    found = tune(
        tiny.make("llama"), data=tokens(), server=client, blocks=1, method="magnitude", **COMMON,
        candidates=[{"allocation": rules}, {"allocation": {r"layers\.1": 0.6}}, {}])
    assert found.candidates[0]["losses"] != found.candidates[2]["losses"]
    assert found.candidates[1]["losses"] == found.candidates[2]["losses"]
    removed = [row["sparsity"] for row in found.candidates]
    assert removed == pytest.approx([0.38, 0.5, 0.5], abs=0.01), "in rows of 32: 12 of 32"
    assert "37.92%" in str(found)


def test_rules_in_the_style_of_llm_compressor(client):
    """Candidates are judged at the sparsities that the winner's run has."""
    rules = {"re:.*mlp": 0.75, "": 0.5}
    found = tune(
        tiny.make("llama"), data=tokens(), server=client, blocks=1, method="magnitude", progress=False,
        allocation={"re:.*": 0.75}, candidates=[{}, {"allocation": rules}])  # no sparsity: rules for all
    mlp, attention = 3 * 48 * 32, 2 * 32 * 32 + 2 * 16 * 32
    mixed = (0.75 * mlp + 0.5 * attention) / (mlp + attention)
    assert [row["sparsity"] for row in found.candidates] == pytest.approx([0.75, mixed])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": [{}]}, "at least two candidates"),
        ({"candidates": {"alpha": 1}}, "at least two candidates"),
        ({"candidates": 3}, "at least two candidates"),
        ({"candidates": [{}, "best"]}, "a candidate must be a dictionary; got 'best'"),
        ({"candidates": [{}, {"sparsity": 0.7}]}, "candidates must share sparsity"),
        ({"candidates": [{}, {"nothing": 1}]}, "candidate 2 of tune: .*nothing"),
        ({"candidates": [{}, {"refine_blocks": {"epoch": 1}}]}, "candidate 2 of tune: .* has no epoch"),
        ({"candidates": [{}, {"allocation": {"nowhere": 0.5}}]}, '"nowhere" of allocation matches no matrix'),
        ({"candidates": [{}, {"refine_blocks": {"epochs": "1"}}]}, "epochs of a BlockRefinement must be an integer"),
        ({"candidates": [{}, {"refine_blocks": {"learning_rate": "1"}}]}, "learning_rate of a BlockRefinement must be"),
        ({"candidates": [{}, {"allocation": 7}]}, "candidate 2 of tune: allocation must be .*; got 7"),
        ({"blocks": 0}, "blocks of a tuning must be an integer of at least 1; got 0"),
        ({"blocks": 1.5}, "blocks of a tuning must be an integer of at least 1; got 1.5"),
        ({"held_back": 0.9}, r"held_back must be in \(0, 0.5\]; got 0.9"),
        ({"data": tiny.tokens(count=3)}, "at least four sequences, two of them held back; got 3"),
    ],
)  # fmt: skip
def test_refusals_change_nothing(options, words):
    """Before a server is asked for anything: there is none."""
    model = tiny.make("llama")
    before = weights(model)
    arguments = {"data": tokens(), "candidates": [{}, {"method": "wanda"}], **options}
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        tune(model, server="127.0.0.1:9", **COMMON, **arguments)
    for name, value in before.items():
        assert torch.equal(value, model.get_parameter(name))


def test_models_that_cannot_be_judged_are_refused():
    options = {"data": tokens(), "server": "127.0.0.1:9", "candidates": CANDIDATES, **COMMON}
    with pytest.raises(sparsefw.InvalidArgument, match="tune needs a model with an output head; LlamaModel has none"):
        tune(tiny.make("llama").model, **options)
    model = tiny.make("llama")
    model.model.layers[1].mlp = model.model.layers[0].mlp
    with pytest.raises(sparsefw.InvalidArgument, match="tune needs blocks with weights of their own"):
        tune(model, **options)


def test_the_program(folder, shared_server, capsys):
    tiny.make("llama").save_pretrained(folder / "dense")
    tokenizer().save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(TEXT)
    common = [
        str(folder / "dense"), "--data", str(folder / "data.txt"), "--sparsity", "0.5", "--sequence-length", "32",
        "--quiet", "--server", shared_server.address, "--method", "wanda",
        "--candidate", "{}", "--candidate", '{"refine_blocks": {"epochs": 1}}',
    ]  # fmt: skip
    assert _cli.main(["tune", *common, "--tune-blocks", "1", "--report", str(folder / "tuned.json")]) == 0
    printed = capsys.readouterr().out
    assert "of the dense model; nats a token on" in printed
    assert len(json.loads((folder / "tuned.json").read_text())["candidates"]) == 2
    assert _cli.main(["tune", *common, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) >= {"candidates", "chosen", "dense_loss"}
    assert _cli.main(["prune-model", *common, "--out", str(folder / "out")]) == 0
    assert "the best of 2 candidates" in capsys.readouterr().out
    assert transformers.AutoModelForCausalLM.from_pretrained(folder / "out")
    for wrong, words in (
        (["--candidate", "{"], "--candidate must be JSON; got {"),
        (["--candidate", '{"alpha": 1}', "--candidate", '{"data": "x"}'], "candidates must share data"),
    ):
        assert _cli.main(["tune", *common, *wrong]) != 0
        assert words in capsys.readouterr().err
    without = [word for word in common if word not in ("--candidate", "{}", '{"refine_blocks": {"epochs": 1}}')]
    assert _cli.main(["prune-model", *without, "--out", str(folder / "o"), "--tune-blocks", "2"]) != 0
    assert "--tune-blocks needs --candidate" in capsys.readouterr().err
    assert _cli.main(["tune", *without]) != 0
    assert "at least two candidates" in capsys.readouterr().err

"""Perplexity, reports, and the program `sparsefw` on whole models."""

import importlib.util
import json
import math
import runpy
import statistics
import warnings
from pathlib import Path

import numpy as np
import pytest
import sparsefw
import tiny
import tokenizers
import torch
import transformers
from sparsefw import _cli
from sparsefw.hf import data, evaluate_perplexity, paired, perplexity, prune_model

TEXT = "\n\n".join(" ".join(f"w{(i * i + 7 * i * j) % 97}" for i in range(60)) for j in range(30))


def tokenizer():
    words = {f"w{i}": i for i in range(128)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0")


def independent(model, ids, length):
    """With transformers' own loss, window by window."""
    windows = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    losses = []
    for window in windows:
        tensor = torch.tensor([window])
        with torch.no_grad():
            losses.append(float(model(input_ids=tensor, labels=tensor).loss))
    return math.exp(sum(losses) / len(losses))


@pytest.fixture
def dense(folder):
    model = tiny.make("llama")
    model.save_pretrained(folder / "dense")
    tokenizer().save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(TEXT)
    return model


def test_paired_differences():
    rng = np.random.default_rng(3)
    noise = rng.normal(5, 2, 40)  # of the windows, the same for both models
    mean, low, high = paired(noise + 0.1 + rng.normal(0, 0.01, 40), noise)
    assert low < mean < high
    assert mean == pytest.approx(0.1, abs=0.01)
    assert high - low < 0.02, "by window, not the spread of windows"
    assert paired(noise, noise) == (0, 0, 0)
    assert paired([1, math.inf], [1, 2]) == (math.inf, math.inf, math.inf)


def test_perplexity_is_that_of_an_independent_evaluation(dense, folder):
    ids = tokenizer()(TEXT)["input_ids"]
    found = evaluate_perplexity(dense.train(), tokenizer(), TEXT, sequence_length=32)
    assert dense.training
    assert found.value == pytest.approx(independent(dense.eval(), ids, 32), rel=1e-5)
    of_folder = evaluate_perplexity(folder / "dense", data=TEXT, sequence_length=32)
    assert of_folder.value == pytest.approx(found.value, rel=1e-6)
    assert found.windows == len(ids) // 32 == len(found.losses)
    assert math.exp(sum(found.losses) / found.windows) == pytest.approx(found.value, rel=1e-6)
    assert found.losses[1] == pytest.approx(math.log(independent(dense, ids[32:64], 32)), rel=1e-5)
    assert found.tokens == found.windows * 31
    words = r"over 93 tokens only \(± 2 standard errors: [\d.]+ to [\d.]+\); take more text"
    with pytest.warns(UserWarning, match=words):
        few = evaluate_perplexity(dense, tokenizer(), TEXT, sequence_length=32, samples=3)
    assert few.windows == 3
    assert math.log(few.margin) == pytest.approx(2 * statistics.stdev(few.losses) / math.sqrt(3))
    assert f"perplexity {few.value:.4f}, ± 2 standard errors: {few.value / few.margin:.4g} to " in str(few)
    with pytest.warns(UserWarning, match="one window does not tell how uncertain that is"):
        assert evaluate_perplexity(dense, None, ids, sequence_length=16, samples=1).margin is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_perplexity(dense, None, ids * (1 + 2000 // len(ids)), sequence_length=32)
    assert evaluate_perplexity(dense, None, ids, sequence_length=9999).length == 64  # its positions


@pytest.mark.parametrize(
    ("losses", "margin", "words"),
    [
        ([math.nan, 1.0], None, r"perplexity nan: losses are not finite in 1 of 2 windows; look at the weights"),
        ([math.inf, math.inf], None, r"perplexity inf: losses are not finite in 2 of 2 windows"),
        ([math.nan], None, r"perplexity nan: losses are not finite in 1 of 1 windows"),
        ([1e4, 9e4], math.inf, r"perplexity inf over 30 tokens only \(± 2 standard errors: 0 to inf\)"),
    ],
    ids=str,
)
def test_a_broken_model_has_a_perplexity_and_no_traceback(losses, margin, words, monkeypatch):
    of_windows = iter(losses)
    monkeypatch.setattr(perplexity, "summed_loss", lambda logits, ids: 15 * next(of_windows))
    model, ids = tiny.make("llama"), tiny.tokens(len(losses), 16)
    with pytest.warns(UserWarning, match=words):
        found = evaluate_perplexity(model, None, ids, sequence_length=16, progress=True)
    assert found.margin == margin
    assert "perplexity " in str(found)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["margin"], told["windows"]) == (None if margin == math.inf else margin, len(losses))
    assert [value is None for value in told["losses"]] == [not math.isfinite(value) for value in losses]


def test_sequences():
    def lists(*args):
        return [sample[0].tolist() for sample in data.sequences(*args)]

    ids = list(range(10))
    assert lists(None, ids, 3, None) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert lists(None, ids, 3, 2) == [[0, 1, 2], [3, 4, 5]]
    assert lists(None, ids, 2, 2) == [[0, 1], [4, 5]]  # spread evenly
    assert lists(None, ids, 16, 4) == [ids]  # not one whole sequence
    assert lists(None, [[1, 2, 3], [4, 5]], 2, None) == [[1, 2], [4, 5]]
    assert lists(None, torch.tensor([[1, 2], [3, 4]]), 8, 1) == [[1, 2]]
    one, other = (data.sequences(None, value, 2, None) for value in ([1, 2, 3, 4], [[1, 2], [3, 4]]))
    assert data.digest(one) == data.digest(other)
    assert data.digest(one) != data.digest(data.sequences(None, [1, 2, 3, 4], 4, None))


def test_frozen_modules_stay_frozen():
    model = tiny.make("llama").train()
    model.model.layers[0].eval()
    model.model.layers[1].mlp.eval()
    before = [module.training for module in model.modules()]
    evaluate_perplexity(model, data=tiny.tokens(), sequence_length=24)
    assert [module.training for module in model.modules()] == before


def test_report(client, dense, folder):
    report = prune_model(dense, data=tiny.tokens(), sparsity=0.5, iterations=50, server=client, progress=True)
    rows = report.rows()
    assert {row["type"] for row in rows} == {
        *(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))}
    assert [row["block"] for row in rows] == [0] * 7 + [1] * 7
    for row in rows:
        assert 0 < row["loss"] <= row["warm_start"] < 1
        assert row["reduction"] == pytest.approx(1 - row["loss"] / row["warm_start"])
        assert 0 < row["certificate"] <= 1
    text = str(report)
    assert "self_attn.q_proj" in text
    assert "50.00%" in text.splitlines()[-3]
    assert text.splitlines()[-1] == "dense: model.embed_tokens.weight, lm_head.weight"
    report.save(folder / "report.json")
    assert json.loads((folder / "report.json").read_text())["layers"] == report.layers
    pytest.importorskip("matplotlib")
    report.plot(folder / "report.png")
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")


def test_the_program(shared_server, dense, folder, capsys):
    words = ["prune-model", f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--samples", "8",
             "--sequence-length", "32", "--iterations", "30", "--swaps", "--out", f"{folder}/out",
             "--state", f"{folder}/state", "--report", f"{folder}/report.json", "--server", shared_server.address]
    assert _cli.main([*words, "-q"]) == 0
    assert "removed 50.000% of 14 matrices" in capsys.readouterr().out
    assert json.loads((folder / "report.json").read_text())["settings"]["samples"] == 8
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder / "out")
    assert float((loaded.model.layers[0].mlp.up_proj.weight == 0).double().mean()) == 0.5
    assert _cli.main(["eval-perplexity", f"{folder}/out", "--data", f"{folder}/data.txt", "--sequence-length", "32",
                      "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    ids = tokenizer()(TEXT)["input_ids"]
    assert found["value"] == pytest.approx(independent(loaded, ids, 32), rel=1e-5)
    # Another call on the same state.
    words[words.index("0.5")] = "0.6"
    assert _cli.main([*words, "--overwrite", "-q"]) == 3
    said = capsys.readouterr().err
    assert "sparsity was 0.5, is 0.6. Give another folder with --state to start anew" in said
    # Another state, and the folder and the report of the first call.
    words[words.index(f"{folder}/state")] += "2"
    assert _cli.main([*words, "-q"]) == 2
    assert f"{folder}/out: exists and is not overwritten: it holds a pruned model of another run" in (
        capsys.readouterr().err)
    assert _cli.main([*words, "--overwrite", "-q"]) == 0


def test_the_text_of_a_file_is_no_name_of_another(dense, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    Path("other.txt").write_text(TEXT)
    Path("name.txt").write_text("other.txt")
    Path("empty.txt").write_text("\n")
    words = ["eval-perplexity", f"{folder}/dense", "--sequence-length", "16", "--quiet", "--json", "--data"]
    assert _cli.main([*words, "other.txt"]) == 0
    tokens = json.loads(capsys.readouterr().out)["tokens"]
    code = _cli.main([*words, "name.txt"])
    said = capsys.readouterr()
    assert code == 2 or json.loads(said.out)["tokens"] < tokens
    assert _cli.main([*words, "empty.txt"]) == 2
    assert "empty.txt: must hold text; it is empty" in capsys.readouterr().err


def test_a_sparsity_in_per_cent_is_refused_before_the_work(dense, folder, capsys):
    words = ["prune-model", f"{folder}/dense", "--data", str(folder / "none.txt"), "--out", str(folder / "out"),
             "--state", str(folder / "state"), "--sparsity", "60"]
    assert _cli.main(words) == 2
    assert "--sparsity must be in [0, 1]; got 60; 60 % is 0.6" in capsys.readouterr().err
    assert not (folder / "state").exists()


@pytest.mark.parametrize("by_the_dense_model", [False, True])
def test_the_example_of_fine_tuning(by_the_dense_model, client, dense, folder, monkeypatch, capsys):
    dense.save_pretrained(folder / "teacher")
    prune_model(dense, data=tiny.tokens(), sparsity=0.5, method="wanda", server=client, progress=False)
    dense.save_pretrained(folder / "dense")
    example = Path(sparsefw.__file__).parents[2] / "examples/fine_tune.py"
    text = f"{folder}/data.txt"
    monkeypatch.setattr("sys.argv", ["fine_tune.py", f"{folder}/dense", text, f"{folder}/tuned", "--held-out", text,
                                     "--steps", "6", "--batch", "4", "--sequence-length", "32", "--rate", "0.003",
                                     *(["--dense", f"{folder}/teacher"] if by_the_dense_model else [])])
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines if line.startswith("step ")]
    last = lines[-1]
    zeros = sum(int((value == 0).sum()) for name, value in dense.named_parameters() if "_proj" in name)
    assert last.startswith(f"{zeros} zeros; held-out perplexity ")
    after, before = (float(word) for word in last.replace(",", "").split()[4::2])
    # A random model predicts no text: one that comes nearer to it need not do so better.
    assert losses[-1] < losses[0] if by_the_dense_model else after < before
    tuned = transformers.AutoModelForCausalLM.from_pretrained(folder / "tuned")
    for name, value in dense.named_parameters():
        if "_proj" in name:
            assert torch.equal(tuned.get_parameter(name) == 0, value == 0), name


def test_refinement_of_blocks_on_the_command_line(shared_server, dense, folder, capsys):
    words = ["prune-model", f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--method",
             "wanda", "--samples", "8", "--sequence-length", "32", "--out", f"{folder}/out", "--server",
             shared_server.address, "-q", "--refine-blocks", "--refine-epochs", "2", "--refine-rate", "0.01"]
    assert _cli.main(words) == 0
    assert "2 blocks refined in" in capsys.readouterr().out
    written = json.loads((folder / "out/sparsefw.json").read_text())
    assert written["settings"]["refine_blocks"] == {"epochs": 2, "learning_rate": 0.01, "held_back": 0.0625}
    assert [one["name"] for one in written["refinements"]] == ["model.layers.0", "model.layers.1"]
    assert all(one["error_after"] < one["error_before"] for one in written["refinements"])


def test_a_preset_on_the_command_line_refines_unless_told_otherwise(shared_server, dense, folder, capsys):
    words = ["prune-model", f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--preset",
             "fast", "--samples", "8", "--sequence-length", "32", "--server", shared_server.address, "-q", "--json"]
    for more, epochs in (([], [1, 1]), (["--refine-epochs", "3"], [3, 3]), (["--no-refine-blocks"], [])):
        assert _cli.main([*words, *more, "--out", f"{folder}/out{len(epochs)}{len(more)}"]) == 0
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert [one["epochs"] for one in report["refinements"]] == epochs


def test_distillation_on_the_command_line(shared_server, dense, folder, capsys):
    words = ["prune-model", f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--samples", "8",
             "--sequence-length", "32", "--server", shared_server.address, "-q"]
    flags = ["--method", "wanda", "--distill", "--distill-epochs", "2", "--distill-rate", "0.003"]
    assert _cli.main([*words, *flags, "--out", f"{folder}/out"]) == 0
    assert "model distilled in" in capsys.readouterr().out
    written = json.loads((folder / "out/sparsefw.json").read_text())
    assert written["settings"]["distill"] == {"epochs": 2, "learning_rate": 0.003, "held_back": 0.0625}
    assert written["distillation"]["divergence_after"] < written["distillation"]["divergence_before"]
    best = ["--preset", "best", "--refine-epochs", "1"]
    for more, epochs in (([], 8), (["--distill-epochs", "1"], 1), (["--no-distill"], None)):
        assert _cli.main([*words, *best, *more, "--json", "--out", f"{folder}/best{epochs}"]) == 0
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (report["distillation"] or {}).get("epochs") == epochs


REFINING = ["prune-model", "{0}/dense", "--data", "{0}/data.txt", "--out", "{0}/o", "--sparsity", "0.5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*REFINING, "--refine-epochs", "2"], "--refine-epochs and --refine-rate need --refine-blocks"),
        ([*REFINING, "--refine-blocks", "--refine-epochs", "0"], "at least 1; got 0"),
        ([*REFINING, "--refine-blocks", "--refine-rate", "nan"], "above 0; got nan"),
        ([*REFINING, "--distill-rate", "1"], "--distill-epochs and --distill-rate need --distill or --preset best"),
        ([*REFINING, "--preset", "best", "--no-distill", "--distill-epochs", "2"], "need --distill"),
        ([*REFINING, "--distill", "--distill-epochs", "0"], "at least 1; got 0"),
        ([*REFINING, "--refine-blocks", "--no-propagate"], "refine_blocks needs propagate=True"),
        (["eval-perplexity", "{0}/none", "--data", "{0}/data.txt"], "no folder"),
        (["eval-perplexity", "{0}", "--data", "{0}/data.txt"], "no config.json"),
        (["eval-perplexity", "{0}/dense", "--data", "{0}/none.txt"], "cannot be read"),
        (["prune-model", "{0}/none", "--data", "{0}/data.txt", "--out", "{0}/o", "--sparsity", "0.5"], "no folder"),
        (["prune-model", "{0}/dense", "--data", "{0}/data.txt", "--out", "{0}/o"], "needs sparsity"),
    ],
)
def test_wrong_commands(shared_server, dense, folder, capsys, words, message):
    words = [word.format(folder) for word in words]
    if words[0] == "prune-model":
        words += ["--server", shared_server.address]
    assert _cli.main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("command", "flag"), [("prune-model", "--report"), ("prune-model", "--plot"), ("tune", "--report")])
def test_a_place_that_cannot_be_written_is_named_before_the_work(dense, folder, capsys, command, flag):
    words = [command, f"{folder}/dense", "--data", f"{folder}/data.txt", "--server", "127.0.0.1:9"]
    words += ["--out", f"{folder}/out"] if command == "prune-model" else []
    assert _cli.main([*words, flag, f"{folder}/none/r"]) == 2
    assert f"{flag}: {folder}/none/r: there is no folder {folder.resolve()}/none" in capsys.readouterr().err
    assert _cli.main([*words, flag, f"{folder}/data.txt"]) == 2
    assert f"{flag}: {folder}/data.txt is an input and would be lost" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_a_report_in_a_folder_that_the_run_makes(shared_server, dense, folder):
    words = ["prune-model", f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--method", "wanda",
             "--sequence-length", "32", "-q", "--server", shared_server.address]
    assert _cli.main([*words, "--out", f"{folder}/out", "--report", f"{folder}/out/report.json"]) == 0
    assert json.loads((folder / "out/report.json").read_text())["layers"]
    assert _cli.main([*words, "--out", f"{folder}/two", "--state", f"{folder}/s", "--report", f"{folder}/s/r.json"]) == 0


@pytest.mark.parametrize("command", ["prune-model", "tune"])
def test_what_was_found_is_printed_where_its_report_cannot_be_saved(
    shared_server, dense, folder, capsys, monkeypatch, command
):
    def full(*_):
        raise OSError(28, "No space left on device")

    for kind in (sparsefw.hf.Report, sparsefw.hf.Tuned):
        monkeypatch.setattr(kind, "save", full)
    words = [command, f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--method", "wanda",
             "--sequence-length", "32", "--report", f"{folder}/r.json", "-q", "--server", shared_server.address]
    more = {"prune-model": ["--out", f"{folder}/out"],
            "tune": ["--samples", "8", "--candidate", "{}", "--candidate", '{"method": "ria"}']}
    assert _cli.main([*words, *more[command]]) == 2
    out, err = capsys.readouterr()
    assert {"prune-model": "removed 50.000%", "tune": "less the winner's"}[command] in out
    assert "No space left on device" in err


def test_what_a_model_command_would_find_out_late(dense, folder, capsys, monkeypatch):
    """Before a server is looked for, but for the device, which is asked for when the model is opened."""
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", f"{folder}/none")
    words = [word.format(folder) for word in REFINING if word != "--refine-blocks"]
    rule = "--refine-epochs and --refine-rate need --refine-blocks or a --preset that refines"
    assert _cli.main([*words, "--preset", "paper", "--refine-epochs", "3"]) == 2
    assert rule in capsys.readouterr().err
    if importlib.util.find_spec("matplotlib") is not None:
        assert _cli.main([*words, "--plot", f"{folder}/r.foo"]) == 2
        assert "--plot: the name must end in one of " in capsys.readouterr().err
    for device in ("gpu", "cuda:99"):
        with pytest.raises(sparsefw.InvalidArgument, match=f'device must be one that PyTorch has here; got "{device}"'):
            prune_model(folder / "dense", data=[[1, 2]] * 4, sparsity=0.5, server="127.0.0.1:9", device=device)


@pytest.mark.parametrize("flags", [["--distill", "--distill-rate", "0"], ["--refine-blocks", "--refine-epochs", "0"]])
def test_wrong_steps_are_named_before_a_server_is_looked_for(dense, folder, capsys, monkeypatch, flags):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", f"{folder}/none")
    assert _cli.main([word.format(folder) for word in REFINING] + flags) == 2
    assert "must be" in capsys.readouterr().err


def test_without_torch_the_commands_say_so(monkeypatch, capsys):
    from sparsefw import _commands

    def missing(name):
        raise ImportError("gone", name="torch")

    monkeypatch.setattr(_commands.importlib, "import_module", missing)
    assert _cli.main(["eval-perplexity", ".", "--data", "x"]) == 2
    assert "torch is not installed: pip install 'sparsefw[hf]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "made", [iter, lambda texts: (text for text in texts), lambda texts: np.array(texts, dtype=object),
             np.array, lambda texts: dict.fromkeys(texts).keys()],
    ids=["iterator", "generator", "objects", "array", "keys"])
def test_texts_may_come_as_anything(client, dense, folder, made):
    """The folder has a tokenizer."""
    texts = TEXT.split("\n\n")
    expected = evaluate_perplexity(folder / "dense", data=texts, sequence_length=32).value
    assert evaluate_perplexity(folder / "dense", data=made(texts), sequence_length=32).value == expected
    options = {"sparsity": 0.5, "method": "wanda", "server": client, "samples": 4, "progress": False}
    assert prune_model(folder / "dense", data=made(texts), **options).sparsity == pytest.approx(0.5)


def test_texts_need_their_tokenizer(client, dense):
    with pytest.raises(sparsefw.InvalidArgument, match="a mixture"):
        prune_model(dense, data=["text", 4], sparsity=0.5, server=client)

"""Names that users of other tools know: of wanda's programs on the command line, of llm-compressor in Python."""

import json

import pytest
import sparsefw
import test_programs
import tiny
import torch
import transformers
from sparsefw import _cli
from sparsefw._commands import wanda
from sparsefw.hf import data, layout, prune_model


@pytest.fixture
def dense(folder):
    tiny.make("llama").save_pretrained(folder / "dense")
    test_programs.tokenizer().save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(test_programs.TEXT)
    return folder / "dense"


def prune(client, **options):
    arguments = {"data": tiny.tokens(count=12), "server": client, "progress": False, "method": "wanda", **options}
    return prune_model(tiny.make("llama"), **arguments)


@pytest.mark.parametrize(("kind", "ratio", "pattern"), [("unstructured", 0.6, "per-row"), ("2:4", 0.5, "2:4")])
def test_a_command_of_wanda(shared_server, client, dense, folder, capsys, kind, ratio, pattern):
    words = ["--model", str(dense), "--prune_method", "wanda", f"--sparsity_ratio={ratio}", "--sparsity_type", kind,
             "--nsamples", "5", "--seed", "3", "--seqlen", "32", "--save_model", f"{folder}/out",
             "--data", f"{folder}/data.txt", "--server", shared_server.address, "-q"]
    assert _cli.main(["prune-model", *words]) == 0
    err = capsys.readouterr().err
    assert f"sparsefw: the same as: sparsefw prune-model {dense} --method wanda --pattern {pattern} " in err
    settings = json.loads((folder / "out/sparsefw.json").read_text())["settings"]
    assert (settings["pattern"], settings["sparsity"], settings["samples"]) == (pattern, ratio, 5)
    other = transformers.AutoModelForCausalLM.from_pretrained(dense)
    prune_model(other, test_programs.tokenizer(), data=test_programs.TEXT, sparsity=ratio, pattern=pattern, samples=5,
                seed=3, sequence_length=32, method="wanda", server=client, progress=False)
    loaded = dict(transformers.AutoModelForCausalLM.from_pretrained(folder / "out").named_parameters())
    for name, value in other.named_parameters():
        assert torch.equal(loaded[name], value), name


@pytest.mark.parametrize(("words", "found"), [
    (["--prune_method", "magnitude", "--sparsity_type", "unstructured"], ["--method", "magnitude", "--pattern",
                                                                          "unstructured"]),
    (["--prune_method", "sparsegpt", "--sparsity_type", "4:8"], ["--method", "sparsegpt", "--pattern", "4:8"]),
    (["--sparsity_type", "unstructured", "--sparsity_ratio", "0.5"], ["--pattern", "per-row", "--sparsity", "0.5"]),
    (["--alpha", "0.5", "--nsamples", "7"], ["--samples", "7", "--alpha", "0.5"]),
])
def test_names_of_wanda(words, found):
    needed = ["--data", "t.txt", "--out", "o"]
    assert wanda.is_wanda([*words, "--model", "m"])
    assert wanda.translate(["--model", "m", *words, *needed]) == ["m", *found, *needed]
    mine = found[:-2] if "--alpha" in words else found
    assert wanda.translate(["m", *words, *needed]) == [*mine, "m", *found[len(mine):], *needed]
    assert not wanda.is_wanda(["m", "--sparsity", "0.5", *needed])


@pytest.mark.parametrize(("words", "message"), [
    (["--cache_dir", "llm_weights"], "--cache_dir has no meaning here: set HF_HOME"),
    (["--save=out/"], "--save has no meaning here: give --report FILE.json"),
    (["--use_variant"], "--use_variant has no meaning here: leave it out"),
    (["--eval_zero_shot"], "--eval_zero_shot has no meaning here: run lm_eval"),
    (["--Lamda", "0.08"], "--allocation owl"),
    (["--prune_method", "ablate_wanda_seq"], "--prune_method must be one of wanda, .*; got ablate_wanda_seq"),
    (["--sparsity_type", "1:2"], "--sparsity_type must be one of unstructured, 2:4, 4:8; got 1:2"),
    (["--model"], "--model needs a value"),
    (["--nsamples", "4"], "--save_model DIR is missing"),
])
def test_names_of_wanda_without_a_meaning_say_what_to_do(words, message, capsys):
    with pytest.raises(sparsefw.InvalidArgument, match=message):
        wanda.translate(["--model", "m", "--data", "t.txt", *words])
    assert _cli.main(["prune-model", "--model", "m", "--data", "t.txt", *words]) == 2
    assert capsys.readouterr().err.startswith("sparsefw: --")


def test_the_text_must_be_given():
    with pytest.raises(sparsefw.InvalidArgument, match="--data FILE.txt is missing"):
        wanda.translate(["--model", "m", "--save_model", "o"])


@pytest.mark.parametrize(("words", "pattern"), [
    (["--data", "{0}/data.txt", "{0}/dense", "--sparsity_ratio", "0.5", "--out", "{0}/o", "--method", "wanda"], "per-row"),
    (["{0}/dense", "--method", "sparsegpt", "--sparsity_type", "unstructured"], "unstructured"),
    (["--method=SparseGPT", "{0}/dense", "--sparsity_type", "unstructured"], "unstructured"),
    (["--prune_method", "magnitude", "--model", "{0}/dense", "--method", "ria", "--sparsity_type", "unstructured"],
     "per-row"),
])
def test_names_of_both_kinds(shared_server, dense, folder, capsys, words, pattern):
    more = ["--seqlen", "32", "--server", shared_server.address, "-q"]
    more += [] if "--out" in words else ["--save_model", "{0}/o", "--data", "{0}/data.txt", "--sparsity", "0.5"]
    assert _cli.main(["prune-model", *(word.format(folder) for word in [*words, *more])]) == 0, capsys.readouterr().err
    assert json.loads((folder / "o/sparsefw.json").read_text())["settings"]["pattern"] == pattern


def test_the_model_must_be_given(capsys):
    assert _cli.main(["prune-model", "--data", "t", "--save_model", "o"]) == 2
    assert "the following arguments are required: MODEL" in capsys.readouterr().err


def test_names_of_llm_compressor(client):
    report = prune(client, sparsity=0.5, num_calibration_samples=4, max_seq_length=16)
    assert (report.settings["samples"], report.settings["sequence_length"]) == (4, 16)
    assert report.layers[0]["tokens"] == 4 * 16
    for name, other in (("samples", "num_calibration_samples"), ("sequence_length", "max_seq_length")):
        with pytest.raises(sparsefw.InvalidArgument, match=f"{other} is another name for {name}"):
            prune(client, sparsity=0.5, **{name: 4, other: 4})
    with pytest.raises(sparsefw.InvalidArgument, match="must share max_seq_length"):
        prune(client, sparsity=0.5, tune=[{}, {"max_seq_length": 4}])


def test_rules_of_llm_compressor(client):
    report = prune(client, sparsity=0.5, ignore=["lm_head", "re:.*down_proj$", r"re:model\.layers\.0\.mlp.up"])
    names = {row["name"] for row in report.layers}
    assert len(names) == 14 - 2 - 1
    assert not any("down_proj" in name for name in names) and "model.layers.0.mlp.up_proj.weight" not in names
    # Matched from the beginning of the module's name: this one holds for nothing.
    assert len(prune(client, sparsity=0.5, ignore="re:down_proj").layers) == 14
    by_rule = prune(client, allocation={"re:.*mlp": 0.7, "": 0.5})
    assert {row["sparsity"] > 0.6 for row in by_rule.rows() if ".mlp." in row["name"]} == {True}
    with pytest.raises(sparsefw.InvalidArgument, match='"re:\\(" is no regular expression'):
        layout.compile_rule("re:(")


def test_a_pattern_may_come_with_its_own_sparsity(client):
    one, other = (prune(client, pattern="2:4", sparsity=sparsity) for sparsity in (None, 0.5))
    assert [row["losses"] for row in one.layers] == [row["losses"] for row in other.layers]


def test_sequences_are_drawn_with_a_seed():
    def drawn(seed):
        return [sample[0].tolist() for sample in data.sequences(None, range(40), 4, 3, seed)]

    every = {tuple(one) for seed in range(20) for one in drawn(seed)}
    assert drawn(7) == drawn(7) != drawn(8)
    assert all(len(drawn(seed)) == 3 and drawn(seed) == sorted(drawn(seed)) for seed in range(20))
    assert every == {tuple(range(start, start + 4)) for start in range(0, 40, 4)}, "all of them can be"
    assert drawn(None) == [[0, 1, 2, 3], [12, 13, 14, 15], [24, 25, 26, 27]]


def test_one_sequence_is_too_few_for_the_usual_preset(client):
    """Nothing was named: what to give must be said."""
    with pytest.raises(sparsefw.InvalidArgument, match=(
            r'preset "balanced" \(it refines; preset="balanced", refine_blocks=False go without\) needs at least two '
            "sequences, one of them held back; got 1: give more text, or a smaller sequence_length")):
        prune(client, sparsity=0.5, method=None, data=tiny.tokens(count=1))
    report = prune(client, sparsity=0.5, method=None, data=tiny.tokens(count=1), preset="balanced", refine_blocks=False)
    assert report.sparsity == 0.5

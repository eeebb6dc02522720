"""Files that prune-model and tune write beside the model."""

import json

import pytest
import tiny
from sparsefw import _cli
from test_programs import TEXT, tokenizer


@pytest.fixture
def words(folder):
    tiny.make("llama").save_pretrained(folder / "dense")
    tokenizer().save_pretrained(folder / "dense")
    (folder / "data.txt").write_text(TEXT)
    return [f"{folder}/dense", "--data", f"{folder}/data.txt", "--sparsity", "0.5", "--sequence-length", "32", "-q"]


def commands(folder):
    candidates = ["--candidate", '{"method": "ria"}', "--candidate", '{"method": "wanda"}', "--samples", "8"]
    return {"prune-model": ["--out", f"{folder}/out", "--method", "wanda"], "tune": candidates}


@pytest.mark.parametrize(("command", "flag"), [("prune-model", "--report"), ("prune-model", "--plot"), ("tune", "--report")])
def test_no_output_takes_the_place_of_a_file(words, folder, capsys, command, flag):
    """Before a server is looked for."""
    (folder / "old.png").write_text("mine")
    (folder / "token").write_text("secret")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    words = [command, *words, *commands(folder)[command], "--server", "127.0.0.1:9"]
    cases = [
        ([f"{folder}/old.png"], f"{folder}/old.png: exists and is not overwritten; --overwrite replaces it"),
        ([f"{folder}/dense/config.json", "--overwrite"], f"{flag}: {folder}/dense/config.json is an input"),
        ([f"{folder}/dense/model.safetensors", "--overwrite"], "is an input and would be lost"),
        ([f"{folder}/token", "--overwrite", "--token-file", f"{folder}/token"], "token is an input"),
        ([f"{folder}/token", "--overwrite", "--tls-key", f"{folder}/token"], "token is an input"),
    ]
    if command == "prune-model":
        cases += [([f"{folder}/out/{name}"], f"{flag}: {folder}/out/{name} is a file of the pruned model")
                  for name in ("config.json", "sparsefw.json", "README.md", "model-00001-of-00002.safetensors")]
    for flags, message in cases:
        assert _cli.main([*words, flag, *flags]) == 2
        assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", ["prune-model", "tune"])
def test_a_report_is_replaced_when_asked_for(shared_server, words, folder, command):
    report = folder / "r.json"
    report.write_text("old")
    words = [command, *words, *commands(folder)[command], "--server", shared_server.address]
    assert _cli.main([*words, "--report", str(report), "--overwrite"]) == 0
    assert "versions" in json.loads(report.read_text()) or command == "tune"
    assert not [path for path in folder.iterdir() if "partial" in path.name]


def test_a_repeated_run_replaces_its_own_report(shared_server, words, folder):
    words = ["prune-model", *words, *commands(folder)["prune-model"], "--server", shared_server.address]
    words += ["--state", f"{folder}/state", "--report", f"{folder}/r.json"]
    for _ in range(2):
        assert _cli.main(words) == 0

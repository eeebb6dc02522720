"""Models by their name on the hub, columns of datasets and files of text, as users of transformers have them."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import sparsefw
from sparsefw._inputs import hub
from sparsefw.hf import data, evaluate_perplexity
from support.processes import BIN_DIR, clean_environment
from tiny import make

TEXT = " ".join(f"w{number % 120}" for number in range(400))


def tokenizer():
    words = {f"w{number}": number for number in range(127)} | {"[UNK]": 127}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


@pytest.fixture
def cache(folder):
    """What huggingface_hub leaves of a model that it has downloaded: links to blobs."""
    place = folder / "cache/models--tiny--llama"
    snapshot = place / "snapshots/0123456789abcdef0123456789abcdef01234567"
    made = folder / "made"
    make("llama").save_pretrained(made)
    tokenizer().save_pretrained(made)
    (place / "blobs").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs/main").write_text(snapshot.name)
    snapshot.mkdir(parents=True)
    for file in made.iterdir():
        file.rename(place / "blobs" / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    return folder / "cache"


PROGRAM = """
import sys
from sparsefw.hf import evaluate_perplexity, prune_model
text, out = sys.argv[1:]
report = prune_model("tiny/llama", data=text, sparsity=0.5, method="wanda", out=out, samples=4, progress=False)
assert abs(report.sparsity - 0.5) < 0.01, report.sparsity
named = evaluate_perplexity("tiny/llama", data=text, sequence_length=32).value
pruned = evaluate_perplexity(out, data=text, sequence_length=32).value
assert named != pruned
print(named)
"""


def test_a_name_on_the_hub_is_a_model(cache, folder):
    text = folder / "text.txt"
    text.write_text(TEXT)
    environment = {**clean_environment(), "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1",
                   "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
                   "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")}
    done = subprocess.run([sys.executable, "-c", PROGRAM, text, folder / "pruned"], capture_output=True,
                          text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    again = subprocess.run(
        [sys.executable, "-m", "sparsefw", "eval-perplexity", "tiny/llama", "--data", text, "--sequence-length",
         "32", "-q"], capture_output=True, text=True, env=environment, check=False)
    assert again.returncode == 0, again.stderr
    assert f"perplexity {float(done.stdout):.4f}" in again.stdout
    assert re.search("^sparsefw: warning: perplexity .* take more text$", again.stderr, re.MULTILINE)


def test_what_the_hub_does_not_have_is_one_sentence(folder, monkeypatch):
    # HF_HUB_OFFLINE is set for all of these tests.
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        evaluate_perplexity("nobody/nothing-of-this-name", data=[[1, 2]])
    message = str(refused.value)
    assert "nobody/nothing-of-this-name: is no folder, and could not be had" in message
    assert "hf download nobody/nothing-of-this-name" in message and "\n" not in message
    for name in (f"{folder}/none", "./none/here", "a/b/c", "none"):
        with pytest.raises(sparsefw.InvalidArgument, match="is no folder, and no ORGANISATION/NAME"):
            hub.local_folder(name)
    # A folder of that name comes first.
    (folder / "org/name").mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert hub.local_folder("org/name").samefile(folder / "org/name")
    assert hub.local_folder(make("llama")) is None


def test_a_path_that_exists_is_read_as_a_file(folder, monkeypatch):
    (folder / "text.txt").write_text("one two")
    monkeypatch.chdir(folder)
    assert data.listed("text.txt") == data.listed(folder / "text.txt") == ["one two"]
    for text in ("one two", "https://example.org/", "x" * 10_000, "a\nb", "nul\0", "w1"):
        assert data.listed(text) == [text]
    for missing in ("none.txt", folder / "none", f"{folder}/rows.jsonl"):
        with pytest.raises(sparsefw.InvalidArgument, match="there is no such file"):
            data.listed(missing)
    (folder / "bytes.txt").write_bytes(b"\xff\xfe")
    for unreadable in (folder, "bytes.txt"):
        with pytest.raises(sparsefw.InvalidArgument, match="cannot be read as text"):
            data.listed(unreadable)


def test_rows_with_a_column_of_text(folder):
    rows = [{"text": "one", "id": 1}, {"text": "two", "id": 2}]
    assert data.listed(rows) == data.listed(iter(rows)) == ["one", "two"]
    with pytest.raises(sparsefw.InvalidArgument, match=r'column "text"; they have "body": pass data\[COLUMN\]'):
        data.listed([{"body": "one"}])
    with pytest.raises(sparsefw.InvalidArgument, match='dictionary of "train", "test": pass one'):
        data.listed({"train": rows, "test": rows})


def test_datasets_of_the_package_datasets():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    texts = ["one two", "three"]
    rows = datasets.Dataset.from_dict({"text": texts, "body": texts[::-1]})
    assert data.listed(rows) == data.listed(rows["text"]) == data.listed(rows.to_iterable_dataset()) == texts
    assert data.listed(rows["body"]) == texts[::-1]
    assert data.listed(rows.to_pandas()["text"]) == data.listed(np.array(texts)) == texts
    with pytest.raises(sparsefw.InvalidArgument, match='a dictionary of "train"'):
        data.listed(datasets.DatasetDict({"train": rows}))

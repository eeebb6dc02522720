"""Files of the commands that are refused before the work, with the exit code of wrong usage."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from sparsefw import _cli
from sparsefw._commands import plot


@pytest.fixture
def layer(folder):
    np.save(folder / "w.npy", np.ones((4, 8), np.float32))
    np.save(folder / "g.npy", np.eye(8, dtype=np.float32))
    return ["prune", "--weights", f"{folder}/w.npy", "--gram", f"{folder}/g.npy", "--sparsity", "0.5",
            "--out", f"{folder}/m.safetensors"]


@pytest.mark.parametrize(("flag", "shape", "what"), [
    ("--weights", (8,), "weight"), ("--weights", (0, 8), "weight"), ("--weights", (2, 4, 8), "weight"),
    ("--gram", (64,), "gram"), ("--activations", (8,), "activations"), ("--activations", (0, 8), "activations"),
    ("--activations", (2, 3, 0), "activations"),
])
@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_tensors_of_other_dimensions(layer, folder, capsys, shared_server, flag, shape, what, ending):
    path = folder / f"x.{ending}"
    values = np.ones(shape, np.float32)
    np.save(path, values) if ending == "npy" else save_file({"x": values}, path)
    words = list(layer)
    if flag == "--activations":
        words[words.index("--gram") : words.index("--gram") + 2] = [flag, str(path)]
    else:
        words[words.index(flag) + 1] = str(path)
    assert _cli.main([*words, "--server", shared_server.address, "-q"]) == 2
    found = capsys.readouterr().err
    shown = [6, 0] if shape == (2, 3, 0) else list(shape)
    assert f"sparsefw: {path}: {what} must have 2 dimensions of at least 1; got shape {shown}" in found


@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_activations_of_more_dimensions_are_flattened(layer, folder, shared_server, ending):
    path = folder / f"x.{ending}"
    values = np.random.default_rng(1).standard_normal((3, 4, 8)).astype(np.float32)
    np.save(path, values) if ending == "npy" else save_file({"x": values}, path)
    words = list(layer)
    words[words.index("--gram") : words.index("--gram") + 2] = ["--activations", str(path)]
    assert _cli.main([*words, "--server", shared_server.address, "-q"]) == 0


@pytest.mark.parametrize(("error", "words"), [
    (MemoryError(), "an array did not fit"),
    (MemoryError("Unable to allocate 4 GiB"), "Unable to allocate 4 GiB"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:121] not enough memory:\nyou tried to allocate"),
     "not enough memory: you tried to allocate"),
])
def test_memory_that_runs_out_is_one_sentence(layer, capsys, monkeypatch, error, words):
    def fail(_):
        raise error

    monkeypatch.setattr("sparsefw._inputs.files.open_tensor", fail)
    assert _cli.main(layer) == 1
    found = capsys.readouterr().err
    assert found.startswith("sparsefw: this machine's memory ran out: ") and words in found
    assert found.count("\n") == 1


@pytest.mark.parametrize("words", ["CUDA error: an illegal memory access was encountered",
                                   "unsupported memory format", "refer to a single memory location"])
def test_other_faults_that_name_memory_keep_their_traceback(layer, monkeypatch, words):
    def fail(_):
        raise RuntimeError(words)

    monkeypatch.setattr("sparsefw._inputs.files.open_tensor", fail)
    with pytest.raises(RuntimeError, match=words):
        _cli.main(layer)


@pytest.mark.parametrize("name", ["loss", "loss.foo", "loss."])
def test_pictures_that_matplotlib_would_not_draw_there(layer, folder, capsys, name):
    """A name without an ending would replace loss.png, which nobody has checked. No server is looked for."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (folder / "loss.png").write_bytes(b"mine")
    for words, flag in ((layer, "--plot"), (["plot", "jobs/a"], "--out")):
        assert _cli.main([*words, "--server", "127.0.0.1:9", flag, f"{folder}/{name}"]) == 2
        found = capsys.readouterr().err
        assert f"{flag}: the name must end in one of " in found and ".png, " in found
        assert found.endswith(f'; got "{folder}/{name}"\n')
    assert (folder / "loss.png").read_bytes() == b"mine"


def test_a_file_of_a_token_that_is_no_text(layer, folder, capsys):
    (folder / "token").write_bytes(b"\xff\xfe")
    for words in (layer, ["info"]):
        assert _cli.main([*words, "--server", "127.0.0.1:9", "--token-file", f"{folder}/token"]) == 2
        assert f"{folder}/token: cannot be read: 'utf-8' codec" in capsys.readouterr().err
        assert _cli.main([*words, "--server", "127.0.0.1:9", "--token-file", f"{folder}/none"]) == 2
        assert f"{folder}/none: cannot be read: No such file or directory" in capsys.readouterr().err


def test_files_of_tokens_and_tls_are_inputs(layer, folder, capsys):
    (folder / "t.png").write_text("secret")
    for words, flag in ((layer, "--out-weights"), (layer, "--plot"), (["plot", "jobs/a"], "--out")):
        for secret in ("--token-file", "--tls-ca", "--tls-cert", "--tls-key"):
            flags = ["--server", "127.0.0.1:9", secret, f"{folder}/t.png", flag, f"{folder}/t.png", "--overwrite"]
            assert _cli.main([*words, *flags]) == 2
            assert f"{flag}: {folder}/t.png is an input and would be lost" in capsys.readouterr().err
    assert (folder / "t.png").read_text() == "secret"


def test_a_picture_that_is_there_is_replaced_when_asked_for(folder, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = folder / "loss.png"
    picture.write_bytes(b"mine")
    words = ["plot", "jobs/a", "--server", "127.0.0.1:9", "--out", str(picture)]
    assert _cli.main(words) == 2
    assert f"{picture}: exists and is not overwritten; --overwrite replaces it" in capsys.readouterr().err
    assert _cli.main([*words, "--overwrite"]) == 3  # there is no server
    assert picture.read_bytes() == b"mine"


def test_a_picture_is_there_as_a_whole(folder, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    trace = plot.Trace()
    trace.points = [(1, 0.5, 0.6), (2, 0.4, 0.5)]
    for name in ("a.png", "a.svg", "a.PDF", "bare"):
        trace.draw(str(folder / name), "jobs/a")
    assert {path.name for path in folder.iterdir()} == {"a.png", "a.svg", "a.PDF", "bare.png"}
    assert (folder / "a.PDF").read_bytes().startswith(b"%PDF")
    before = (folder / "a.png").read_bytes()

    def fail(self, file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        trace.draw(str(folder / "a.png"), "jobs/a")
    assert (folder / "a.png").read_bytes() == before
    assert len(list(folder.iterdir())) == 4

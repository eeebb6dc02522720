"""Files of the commands that are refused before the work, with the exit code of wrong usage."""

import numpy as np
import pytest

from sparsefw import _cli


@pytest.fixture
def layer(folder):
    np.save(folder / "w.npy", np.ones((4, 8), np.float32))
    np.save(folder / "g.npy", np.eye(8, dtype=np.float32))
    return ["prune", "--weights", f"{folder}/w.npy", "--gram", f"{folder}/g.npy", "--sparsity", "0.5",
            "--out", f"{folder}/m.safetensors"]


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

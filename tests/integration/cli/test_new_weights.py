"""Jobs that make new weights of which the caller takes only the mask."""
import re

import pytest

from support import safetensors


def test_a_loss_of_weights_that_no_file_has_is_a_warning(cli, layer, folder):
    def warning(done):
        return re.findall(r"sparsefw-cli: (--out-weights is not given.*; the mask alone loses (\S+) %.*)\n",
                          done.expect(0).err)

    flags = ["--method", "wanda", "--reconstruct"]
    done = cli.run(*layer.submit(*flags, "--json"))
    losses = done.json()["losses"]
    ((text, share),) = warning(done)
    assert float(share) == pytest.approx(100 * losses["final"] / losses["full"], abs=1e-3)
    assert float(share) > 100 * done.json()["loss"]
    assert safetensors.read(layer.mask_file)[1]["loss_of"] == "new weights"
    ((shrunk, _),) = warning(cli.run(*layer.submit("--preset", "best", "--quiet")))
    assert shrunk.endswith("(G shrunk)")
    assert not warning(cli.run(*layer.submit(*flags, "--out-weights", folder / "new")))
    assert not warning(cli.run(*layer.submit("--method", "wanda")))
    assert safetensors.read(layer.mask_file)[1]["loss_of"] == "mask"
    job = cli.run(*layer.submit("--detach", "--json", *flags, out=False)).expect(0).json()["job"]
    assert warning(cli.run("fetch", job, "--out", folder / "one", "--keep-tensors")) == [(text, share)]
    assert not warning(cli.run("fetch", job, "--out", folder / "two", "--out-weights", folder / "weights"))

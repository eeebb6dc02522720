"""One Ray cluster for the tests of this folder: two nodes of one core, which tests may kill."""

import pytest


@pytest.fixture(scope="session")
def work_folder(tmp_path_factory):
    """Where servers of workers have their folders."""
    folder = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def shards_of_a_sample():
    """The few samples of a test are as many shards: with two, sums in either order would be the same."""
    from sparsefw.hf.calibration import grams

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grams, "_SAMPLES", 1)
        yield


@pytest.fixture(scope="session")
def nodes(work_folder):
    pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")
    import clusters

    with clusters.cluster(2, piece=clusters.PIECE) as found:
        yield found

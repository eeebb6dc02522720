"""One Ray cluster for the tests of this folder: two nodes of one core, which tests may kill."""

import pytest


@pytest.fixture(scope="session")
def work_folder(tmp_path_factory):
    """Where servers of workers have their folders."""
    folder = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def nodes(work_folder):
    pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")
    import clusters

    with clusters.cluster(2, piece=clusters.PIECE) as found:
        yield found

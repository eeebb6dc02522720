"""Jobs: results against the formulas, cancel, deadlines, refusals, sweeps."""

import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import sparsefw
from layers import ENDLESS, Layer, running
from support import reference
from support.processes import HANG, in_time, wait_until


@pytest.fixture(scope="module")
def layer():
    return Layer()


@pytest.fixture(scope="module")
def big():
    return Layer(256, 256, seed=11)


@pytest.mark.parametrize(("pattern", "sparsity"), [("per-row", 0.6), ("unstructured", 0.55), ("2:4", None)])
def test_a_mask_has_its_counts_and_its_loss(client, layer, pattern, sparsity):
    result = client.prune(layer.weight, layer.gram, pattern=pattern, sparsity=sparsity, iterations=60,
                          step_rule="line-search", swaps=True)
    assert result.mask.dtype == bool
    assert result.mask.shape == (24, 32)
    reference.check_counts(result.mask, pattern, sparsity)
    assert result.kept == result.mask.sum()
    assert result.losses.final == pytest.approx(layer.loss(result.mask), rel=1e-6)
    assert result.losses.full == pytest.approx(layer.loss(np.zeros_like(result.mask)), rel=1e-6)
    assert result.losses.lower_bound <= result.losses.final <= result.losses.warm_start
    assert 0 < result.certificate <= 1
    assert result.loss == pytest.approx(result.losses.final / result.losses.full)
    assert (result.state, result.device) == ("SUCCEEDED", "cpu")
    assert not result.has_weight
    with pytest.raises(sparsefw.FailedPrecondition):
        _ = result.weight


def test_activations_instead_of_a_gram_matrix(client, layer):
    result = client.prune(layer.weight, activations=np.split(layer.activations, 5), sparsity=0.5,
                          method="wanda")
    scores = reference.saliency("wanda", layer.weight, layer.gram)
    reference.check_top(result.mask, scores, "per-row", 0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_come_in_the_dtype_of_the_input(client, layer, dtype):
    weight = layer.weight.astype(dtype)
    result = client.prune(weight, layer.gram, sparsity=0.5, method="ria", return_weight=True)
    assert result.weight.dtype == dtype
    assert (result.weight == weight * result.mask).all()
    updated = client.prune(weight, layer.gram, sparsity=0.5, method="sparsegpt")
    assert ((updated.weight != 0) <= updated.mask).all()
    assert updated.losses.reconstructed < result.losses.final
    assert updated.loss == updated.losses.reconstructed / updated.losses.full


def test_losses_with_a_shrinkage(client, layer):
    result = client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda", reconstruct=True,
                          shrinkage=0.25)
    gram = layer.gram.astype(np.float64)
    shrunk = 0.75 * gram + 0.25 * np.diag(np.diag(gram))
    missing = layer.weight.astype(np.float64) - result.weight
    losses = result.losses
    assert losses.reconstructed == pytest.approx(((missing @ shrunk) * missing).sum(), rel=1e-5)
    assert losses.unshrunk.result == pytest.approx(((missing @ gram) * missing).sum(), rel=1e-4)
    assert losses.unshrunk.full == pytest.approx(layer.loss(np.zeros_like(result.mask)), rel=1e-5)
    assert losses.unshrunk.warm_start == pytest.approx(layer.loss(result.mask), rel=1e-4)
    assert result.loss == losses.unshrunk.result / losses.unshrunk.full
    plain = client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda", reconstruct=True)
    assert plain.losses.unshrunk is None
    # The same mask, since the diagonal stays; the best weights of G lose the least with G.
    assert (plain.mask == result.mask).all()
    assert plain.loss < result.loss
    with pytest.raises(sparsefw.InvalidArgument, match="shrinkage"):
        client.prune(layer.weight, layer.gram, sparsity=0.6, shrinkage=1)


def test_what_the_joint_search_did(client, layer):
    result = client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda", joint=True)
    solved = client.prune(layer.weight, layer.gram, sparsity=0.6, method="wanda", reconstruct=True)
    joint = result.joint
    assert joint.start_loss == solved.losses.reconstructed
    assert joint.reduction == 1 - result.losses.reconstructed / joint.start_loss > 0
    assert joint.exchanges > 0
    assert joint.converged
    assert result.candidate == "JOINT"
    assert (result.mask & ~solved.mask).sum() > 0
    assert solved.joint is None


def test_which_iterations_were_screened(client, big):
    # More than a screened iteration has to save before it is tried.
    result = client.prune(big.weight, big.gram, sparsity=0.6, alpha=0.9, iterations=1500, report_every=1500)
    screening = result.screening
    assert 0 < screening.epochs <= screening.iterations < result.iterations == 1500
    assert 0 < screening.active_share < 1
    assert client.prune(big.weight, big.gram, sparsity=0.6, method="wanda").screening is None


def test_bfloat16(client, layer, monkeypatch):
    weight = layer.weight.astype(ml_dtypes.bfloat16)
    result = client.prune(weight, layer.gram, sparsity=0.5, method="wanda", return_weight=True)
    assert result.weight.dtype == ml_dtypes.bfloat16
    assert (result.weight == weight * result.mask).all()
    with client.upload(weight) as tensor:
        assert tensor.dtype == "bfloat16"
        # Without the package the same values come as float32.
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        read = tensor.read()
        assert read.dtype == np.float32
        assert (read == weight.astype(np.float32)).all()


def test_inputs_of_a_job_alone_are_gone_after_it(client, layer):
    before = {tensor.name for tensor in client.list()}
    gram = client.upload(layer.gram, "gram")
    result = client.prune(layer.weight, gram, sparsity=0.5, method="wanda")
    left = {tensor.name for tensor in client.list()} - before
    assert left == {gram.name, result.mask_tensor}
    client.delete(result.job)
    gram.delete()
    assert {tensor.name for tensor in client.list()} == before


def test_a_warm_start_of_ones_own(client, layer):
    wanda = client.prune(layer.weight, layer.gram, sparsity=0.5, method="wanda")
    for warm_start in (wanda.mask, np.where(wanda.mask, 2, 1).astype(np.float32)):
        result = client.prune(layer.weight, layer.gram, sparsity=0.5, iterations=1, warm_start=warm_start)
        assert result.losses.warm_start == pytest.approx(wanda.losses.final)
    with client.upload(wanda.mask, "mask") as mask:
        result = client.prune(layer.weight, layer.gram, sparsity=0.5, iterations=1, warm_start=mask)
    assert result.losses.warm_start == pytest.approx(wanda.losses.final)


def test_progress_is_told(client, big, capsys):
    seen = []
    client.prune(big.weight, big.gram, sparsity=0.6, iterations=1000, progress=seen.append)
    assert seen[-1].ended
    client.prune(big.weight, big.gram, sparsity=0.6, iterations=1000, progress=True)
    assert "it" in capsys.readouterr().err


def test_cancel_in_each_state(start_server, big):
    server = start_server("--workers", "1")
    with sparsefw.connect(server.address) as client:
        gram = client.upload(big.gram, "gram")
        first = client.submit(big.weight, gram, sparsity=0.6, **ENDLESS)
        queued = client.submit(big.weight, gram, sparsity=0.6, **ENDLESS)
        running(first, 1000)
        assert queued.refresh().state == "QUEUED"

        queued.cancel()
        with pytest.raises(sparsefw.Cancelled) as cancelled:
            queued.result()
        assert cancelled.value.job == queued.name
        assert queued.state == "CANCELLED"

        first.cancel()
        result = first.result()
        assert (result.state, result.stop_reason) == ("CANCELLED", "CANCELLED")
        reference.check_counts(result.mask, "per-row", 0.6)
        assert result.losses.final < result.losses.warm_start

        again = first.cancel()  # of a job that has ended it changes nothing
        assert again.state == "CANCELLED"
        done = client.submit(big.weight, gram, sparsity=0.6, method="wanda").wait()
        assert done.cancel().state == "SUCCEEDED"


def test_an_interrupt_of_prune_cancels_its_job(client, big):
    def interrupt(event):
        if event.progress is not None and event.progress.iteration:
            raise KeyboardInterrupt

    before = {tensor.name for tensor in client.list()}
    with pytest.raises(KeyboardInterrupt):
        client.prune(big.weight, big.gram, sparsity=0.6, labels={"test": "interrupt"},
                     progress=interrupt, **ENDLESS)
    (job,) = client.jobs(labels={"test": "interrupt"})
    wait_until(lambda: job.refresh().state == "CANCELLED", "the job is cancelled")
    left = {tensor.name for tensor in client.list()} - before
    assert left <= {job.message.result.mask}, "its inputs are gone"


def test_the_same_request_id_goes_on_with_an_interrupted_prune(client, big):
    def interrupt(event):
        if event.progress is not None and event.progress.iteration:
            raise KeyboardInterrupt

    call = {"sparsity": 0.6, "iterations": 3000, "report_every": 100, "request_id": "layer 7"}
    with pytest.raises(KeyboardInterrupt):
        client.prune(big.weight, activations=big.activations, progress=interrupt, **call)
    sent = []
    result = client.prune(big.weight, activations=big.activations, progress=sent.append, **call)
    assert result.iterations == 3000
    assert result.state == "SUCCEEDED"
    assert client.job(result.job).message.attempts == 1, "the same job went on"


def test_a_deadline_gives_the_best_mask_so_far(client, big):
    def attempt(seconds):
        try:
            return client.prune(big.weight, big.gram, sparsity=0.6, deadline=seconds, **ENDLESS)
        except sparsefw.DeadlineExceeded:
            return None

    result = in_time(attempt, 0.5)
    assert (result.state, result.stop_reason) == ("SUCCEEDED", "DEADLINE")
    reference.check_counts(result.mask, "per-row", 0.6)


def test_refusals_have_reasons(client, layer):
    def refused(kind, reason, *arguments, **options):
        with pytest.raises(kind) as error:
            client.submit(*(arguments or (layer.weight, layer.gram)), **{"sparsity": 0.5, **options})
        assert error.value.reason == reason
        return error.value

    refused(sparsefw.InvalidArgument, "PATTERN_INVALID", sparsity=1.5)
    refused(sparsefw.InvalidArgument, "OPTION_INVALID", alpha=2)
    refused(sparsefw.InvalidArgument, "SHAPE_MISMATCH", layer.weight, np.eye(7, dtype=np.float32))
    refused(sparsefw.FailedPrecondition, "DEVICE_UNAVAILABLE", device="cuda")
    refused(sparsefw.FailedPrecondition, "TENSOR_NOT_FOUND", "tensors/none", layer.gram)
    refused(sparsefw.InvalidArgument, "CLIENT_ARGUMENT", layer.weight)
    bad = layer.weight.copy()
    bad[3, 4] = np.inf
    error = refused(sparsefw.InvalidArgument, "NON_FINITE", bad, layer.gram)
    assert error.metadata["field"] == "weight"
    with pytest.raises(sparsefw.NotFound) as unknown:
        client.get("jobs/none")
    assert unknown.value.reason == "JOB_NOT_FOUND"


def test_refused_options_upload_nothing(client, layer):
    before = {tensor.name for tensor in client.list()}
    with pytest.raises(sparsefw.InvalidArgument):
        client.submit(layer.weight, layer.gram, sparsity=0.5, alpha=-1)
    assert {tensor.name for tensor in client.list()} == before
    asymmetric = layer.gram.copy()
    asymmetric[0, 1] += 1000
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        client.submit(layer.weight, asymmetric, sparsity=0.5)
    assert refused.value.reason == "GRAM_ASYMMETRIC"
    assert refused.value.metadata["field"] == "gram"
    assert {tensor.name for tensor in client.list()} == before


def test_a_tensor_in_use_cannot_be_deleted(client, big):
    gram = client.upload(big.gram, "gram")
    job = client.submit(big.weight, gram, sparsity=0.6, **ENDLESS)
    with pytest.raises(sparsefw.FailedPrecondition) as used:
        gram.delete()
    assert used.value.reason == "TENSOR_IN_USE"
    with pytest.raises(sparsefw.FailedPrecondition) as unfinished:
        job.delete()
    assert unfinished.value.reason == "JOB_NOT_FINISHED"
    job.cancel().wait()
    job.delete()
    gram.delete()


def test_a_request_id_makes_one_job(client, layer):
    with client.upload(layer.weight) as weight, client.upload(layer.gram, "gram") as gram:
        one = client.submit(weight, gram, sparsity=0.5, request_id="once")
        two = client.submit(weight, gram, sparsity=0.5, request_id="once")
        assert one.name == two.name
        with pytest.raises(sparsefw.InvalidArgument) as reused:
            client.submit(weight, gram, sparsity=0.6, request_id="once")
        assert reused.value.reason == "REQUEST_ID_REUSED"
        one.wait()


def test_jobs_are_listed_by_state_and_label(client, layer):
    jobs = [client.submit(layer.weight, layer.gram, sparsity=0.5, method="wanda",
                          labels={"list": "me", "n": str(n)}).wait() for n in range(3)]
    names = [job.name for job in jobs]
    assert [job.name for job in client.jobs(labels={"list": "me"})] == names[::-1]
    assert [job.name for job in client.jobs(["SUCCEEDED"], {"list": "me"}, limit=2)] == names[:0:-1]
    assert client.jobs(["failed"], {"list": "me"}) == []
    assert client.job(names[1]).labels == {"list": "me", "n": "1"}
    with pytest.raises(sparsefw.InvalidArgument, match='a state must be one of "queued"'):
        client.jobs(["done"])


def test_a_sweep_has_a_best_point(client, layer):
    table = client.sweep(layer.weight, layer.gram, alpha=[0.0, 0.5, 0.9], sparsity=[0.5, 0.6],
                         iterations=100, step_rule="line-search", keep_all=True)
    assert len(table) == 6
    assert [(point.setting["alpha"], point.setting["sparsity"]) for point in table] == [
        (0.0, 0.5), (0.0, 0.6), (0.5, 0.5), (0.5, 0.6), (0.9, 0.5), (0.9, 0.6)]
    # The result has the first pattern.
    finals = [point.result.losses.final for point in table if point.setting["sparsity"] == 0.5]
    assert table.best.losses.final == min(finals)
    assert table.best_setting["sparsity"] == 0.5
    for point in table:
        reference.check_counts(point.result.mask, "per-row", point.setting["sparsity"])
        assert point.result.losses.final == pytest.approx(layer.loss(point.result.mask), rel=1e-6)
    assert table[table.best_index].result.mask is table.best.mask
    rows = table.rows()
    assert [row["best"] for row in rows].count(True) == 1
    assert len(str(table).splitlines()) == 7


def test_a_sweep_over_patterns_and_methods(client, layer):
    table = client.sweep(layer.weight, layer.gram, pattern=["2:4", "per-row"], sparsity=0.6,
                         method=["wanda", "sparsegpt"])
    assert [(point.setting["pattern"], point.setting["method"]) for point in table] == [
        ("2:4", "wanda"), ("2:4", "sparsegpt"), ("per-row", "wanda"), ("per-row", "sparsegpt")]
    assert table[0].result.kept == 24 * 16
    assert table.best_setting["pattern"] == "2:4"
    # The best mask of every pattern is kept.
    assert sorted(point.result.has_mask for point in table) == [False, False, True, True]


def test_a_point_that_fails_does_not_end_the_others(client, layer):
    table = client.sweep(layer.weight, layer.gram, sparsity=0.5, points=[
        {"method": "wanda"}, {"method": "sparsegpt", "swaps": False}, {"alpha": 0.5}], iterations=10)
    assert all(point.error is None for point in table)
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        client.sweep(layer.weight, layer.gram, sparsity=0.5, alpha=[0.5, 7])
    assert refused.value.reason == "OPTION_INVALID"


def test_to_pandas(client, layer, monkeypatch):
    pandas = type(sys)("pandas")
    pandas.DataFrame = lambda rows: ("frame of", rows)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    table = client.sweep(layer.weight, layer.gram, sparsity=0.5, alpha=[0, 0.9], iterations=5)
    assert table.to_pandas() == ("frame of", table.rows())
    assert [row["alpha"] for row in table.rows()] == [0, 0.9]


def test_info(client):
    info = client.info()
    assert info.version
    assert info.devices[0].name == "cpu"


def test_threads_share_a_client(client):
    layers = [Layer(seed=seed) for seed in range(6)]
    results = {}

    def work(index):
        one = layers[index]
        results[index] = client.prune(one.weight, one.gram, sparsity=0.5, iterations=50)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert all(results[index].losses.final == pytest.approx(layers[index].loss(results[index].mask),
                                                             rel=1e-6) for index in range(6))

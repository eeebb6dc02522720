"""Every command of sparsefw-cli against a running server: output, files, exit codes."""
import re
import signal
import socket
import time

import grpc
import numpy as np
import pytest

from support import reference, safetensors
from support.layers import ENDLESS
from support.processes import HANG, Cli, finish, in_time, wait_until
from support.rpc import Client

JSON_KEYS = {"job", "state", "method", "pattern", "shape", "kept", "losses", "relative_reduction",
             "iterations", "stop_reason", "candidate", "device", "timings"}
LOSS_KEYS = {"full", "warm_start", "relaxed", "rounded", "final", "lower_bound"}
TIMING_KEYS = {"upload_s", "queue_s", "solve_s", "total_s"}


def detach(cli, layer, *flags):
    return cli.run(*layer.submit("--detach", "--json", *flags, out=False)).expect(0).json()["job"]


def jobs(cli):
    return cli.run("list", "--json").expect(0).json()["jobs"]


def test_submit_prints_one_json_object(cli, layer):
    done = cli.run(*layer.submit("--json", "--method", "sparsefw", "--alpha", "0.5",
                                 "--iterations", "50")).expect(0)
    result = done.json()
    assert set(result) >= JSON_KEYS, JSON_KEYS - set(result)
    assert set(result["losses"]) >= LOSS_KEYS and set(result["timings"]) >= TIMING_KEYS
    assert result["job"].startswith("jobs/")
    assert (result["state"], result["method"]) == ("SUCCEEDED", "sparsefw")
    assert result["pattern"] == "per-row" and result["shape"] == [24, 32]
    assert (result["iterations"], result["stop_reason"]) == (50, "ITERATIONS")
    assert result["candidate"] in ("WARM_START", "ROUNDED") and result["device"] == "cpu"
    mask = layer.mask()
    assert result["kept"] == mask.sum()
    losses = result["losses"]
    assert losses["final"] == pytest.approx(reference.loss(layer.weight, layer.gram, mask), rel=1e-6)
    assert losses["full"] == pytest.approx(
        reference.loss(layer.weight, layer.gram, np.zeros_like(mask)), rel=1e-6)
    assert losses["lower_bound"] <= losses["final"] <= losses["warm_start"] <= losses["full"]
    assert result["relative_reduction"] == pytest.approx(
        1 - losses["final"] / losses["warm_start"], abs=1e-9)
    timings = result["timings"]
    assert all(seconds >= 0 for seconds in timings.values())
    assert timings["total_s"] >= timings["solve_s"]


@pytest.mark.parametrize("pattern", ["unstructured", "per-row", "2:4", "3:8"])
@pytest.mark.parametrize("method", ["sparsefw", "wanda", "ria", "magnitude"])
def test_every_method_and_pattern(cli, layer, method, pattern):
    flags = ["--iterations", "20"] if method == "sparsefw" else []
    result = cli.run(*layer.submit("--json", "--method", method, *flags, pattern=pattern)) \
        .expect(0).json()
    mask = layer.mask()
    reference.check_counts(mask, pattern, 0.6)
    if method != "sparsefw":
        reference.check_top(mask, reference.saliency(method, layer.weight, layer.gram), pattern, 0.6)
        assert result["iterations"] == 0
    assert result["losses"]["final"] == pytest.approx(
        reference.loss(layer.weight, layer.gram, mask), rel=1e-6)


@pytest.mark.parametrize("warm_start", ["wanda", "ria", "magnitude"])
@pytest.mark.parametrize("rule", ["open-loop", "line-search", "auto"])
def test_warm_starts_and_step_rules(cli, layer, warm_start, rule):
    result = cli.run(*layer.submit("--json", "--method", "sparsefw", "--warm-start", warm_start,
                                   "--step-rule", rule, "--alpha", "0", "--iterations", "100")) \
        .expect(0).json()
    scores = reference.saliency(warm_start, layer.weight, layer.gram)
    keep = 32 - int(32 * 0.6)
    warm = np.zeros(scores.shape, bool)
    np.put_along_axis(warm, np.argsort(scores, axis=1)[:, -keep:], True, axis=1)
    assert result["losses"]["warm_start"] == pytest.approx(
        reference.loss(layer.weight, layer.gram, warm), rel=1e-5)
    assert result["relative_reduction"] > 0.05


def test_step_rule_auto_stops_by_itself(cli, layer):
    result = cli.run(*layer.submit("--json", "--method", "sparsefw", "--step-rule", "auto",
                                   "--iterations", "100000")).expect(0).json()
    assert result["stop_reason"] == "GAP" and result["iterations"] < 100000
    assert cli.run(*layer.submit("--step-rule", "quick")).expect(2).err.count("auto") == 1


def test_relative_gap_stops_early(cli, layer):
    result = cli.run(*layer.submit("--json", "--method", "sparsefw", "--rel-gap", "0.2",
                                   "--iterations", "100000")).expect(0).json()
    assert result["stop_reason"] == "GAP" and result["iterations"] < 100000


def test_mask_file_carries_the_numbers(cli, layer):
    result = cli.run(*layer.submit("--json", "--method", "wanda")).expect(0).json()
    tensors, metadata = safetensors.read(layer.mask_file)
    assert list(tensors) == ["mask"]
    assert tensors["mask"].dtype == bool and tensors["mask"].shape == (24, 32)
    assert result["job"] in metadata.values()
    numbers = []
    for value in metadata.values():
        try:
            numbers.append(float(value))
        except ValueError:
            pass
    assert any(abs(n / result["losses"]["final"] - 1) < 1e-6 for n in numbers if n), metadata


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_pruned_weight_has_the_weights_name_and_dtype(cli, layer, folder, dtype):
    stored = {"F32": layer.weight, "F16": layer.weight.astype("<f2"),
              "BF16": safetensors.to_bf16(layer.weight)}[dtype]
    weights = safetensors.write(folder / "typed.safetensors",
                                {"model.layer.weight": stored, "other": np.zeros(3, "<f4")})
    pruned = folder / "pruned.safetensors"
    cli.run(*layer.submit("--json", "--method", "ria", "--weights", f"{weights}:model.layer.weight",
                          "--out-weights", pruned)).expect(0)
    tensors, _ = safetensors.read(pruned)
    assert list(tensors) == ["model.layer.weight"]
    assert tensors["model.layer.weight"].dtype == stored.dtype
    np.testing.assert_array_equal(tensors["model.layer.weight"], np.where(layer.mask(), stored, 0))


def test_gram_in_float64(cli, layer, folder):
    gram = safetensors.write(folder / "g64.safetensors", {"gram": layer.gram.astype("<f8")})
    one = cli.run(*layer.submit("--json", "--method", "wanda")).expect(0).json()
    two = cli.run(*layer.submit("--json", "--method", "wanda", "--gram", gram)).expect(0).json()
    assert one["losses"] == pytest.approx(two["losses"])


def test_list_shows_losses_and_labels_and_says_where_there_is_nothing(start_server, layer):
    cli = Cli(start_server().address)
    empty = cli.run("list").expect(0)
    assert (empty.out, empty.err) == ("", "sparsefw-cli: there are no jobs\n")
    result = cli.run(*layer.submit("--method", "wanda", "--label", "layer=2.query", "--json")).expect(0).json()
    line = cli.run("list").expect(0).out.splitlines()[1]
    assert f"{100 * result['loss']:.3f} %" in line and line.endswith(" layer=2.query")
    assert "no job matches" in cli.run("list", "--label", "layer=3").expect(0).err


def test_list_stops_at_its_limit(start_server, layer):
    cli = Cli(start_server().address)
    submit = layer.submit("--method", "wanda", "--json")
    made = [cli.run(*submit).expect(0).json()["job"] for _ in range(3)]

    def listed(*flags):
        return [entry["job"] for entry in cli.run("list", "--json", *flags).expect(0).json()["jobs"]]

    assert listed("--limit", "1") == made[:1:-1], "the newest"
    assert listed("--limit", "2") == made[:0:-1]
    for all_of_them in ((), ("--limit", "0"), ("--limit", "9")):
        assert listed(*all_of_them) == made[::-1]


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_activations_instead_of_a_gram(cli, layer, folder, dtype):
    stored = {"F32": layer.activations, "F16": layer.activations.astype("<f2"),
              "BF16": safetensors.to_bf16(layer.activations)}[dtype]
    values = safetensors.from_bf16(stored) if dtype == "BF16" else stored
    inputs = values.astype(np.float64)
    activations = safetensors.write(folder / "typed.safetensors", {"x": stored})
    arguments = ["submit", "--weights", layer.weights_file, "--activations", activations,
                 "--method", "wanda", "--pattern", "2:4", "--out", layer.mask_file, "--json"]
    result = cli.run(*arguments).expect(0).json()
    assert result["losses"]["final"] == pytest.approx(
        reference.loss(layer.weight, inputs.T @ inputs, layer.mask()), rel=1e-5)


def test_gram_command(cli, layer, folder):
    out = folder / "made.safetensors"
    cli.run("gram", "--activations", layer.activations_file, "--out", out).expect(0)
    tensors, metadata = safetensors.read(out)
    (gram,) = tensors.values()
    inputs = layer.activations.astype(np.float64)
    np.testing.assert_allclose(gram, inputs.T @ inputs, rtol=1e-5,
                               atol=1e-5 * np.abs(gram).max())
    np.testing.assert_array_equal(gram, gram.T)
    assert "200" in metadata.values(), "the token count travels with G"
    cli.run(*layer.submit("--method", "wanda", "--gram", out)).expect(0)


def test_results_on_standard_output_everything_else_on_standard_error(cli, big_layer):
    done = cli.run(*big_layer.submit("--method", "sparsefw", "--iterations", "2000",
                                 "--report-every", "20")).expect(0)
    assert "jobs/" in done.out and "\r" not in done.out + done.err and "\033" not in done.err
    assert "iteration " not in done.out
    assert re.search(r"uploading .*/s", done.err)
    assert re.search(r"(?m)^iteration \d+/2000  relaxed .*  converged to \S+ %  ", done.err)


def test_detach_watch_status_list_fetch(cli, layer, folder):
    text = cli.run(*layer.submit("--method", "wanda", "--detach", out=False)).expect(0)
    assert re.fullmatch(r"jobs/\S+\n", text.out)
    job = detach(cli, layer, "--method", "sparsefw", "--iterations", "30")
    assert job.startswith("jobs/")
    cli.run("watch", job).expect(0)
    assert cli.run("status", job, "--json").expect(0).json()["state"] == "SUCCEEDED"
    assert job in cli.run("status", job).expect(0).out
    assert job in [entry["job"] for entry in jobs(cli)]
    header, line, *_ = cli.run("list").expect(0).out.splitlines()
    assert header.split() == ["job", "state", "method", "pattern", "shape", "loss", "submitted", "labels"]
    assert job in line
    mask, pruned = folder / "fetched.safetensors", folder / "pruned.safetensors"
    result = cli.run("fetch", job, "--out", mask, "--json").expect(0).json()
    assert set(result) >= JSON_KEYS and result["job"] == job
    tensors, _ = safetensors.read(mask)
    assert tensors["mask"].sum() == result["kept"]
    assert not pruned.exists()


def test_fetch_waits_for_the_end(cli, big_layer, folder):
    job = detach(cli, big_layer, *ENDLESS)
    wait_until(lambda: cli.run("status", job, "--json").json()["state"] == "RUNNING", "runs")
    fetch = cli.start("fetch", job, "--out", folder / "m.safetensors", "--json")
    time.sleep(0.5)  # it should be waiting
    assert fetch.poll() is None
    cli.run("cancel", job).expect(0)
    assert finish(fetch).expect(0).json()["stop_reason"] == "CANCELLED"


def test_fetch_also_brings_the_pruned_weight(cli, layer, folder):
    pruned = folder / "pruned.safetensors"
    job = detach(cli, layer, "--method", "wanda")
    cli.run("watch", job).expect(0)
    cli.run("fetch", job, "--out", layer.mask_file, "--out-weights", pruned).expect(0)
    tensors, _ = safetensors.read(pruned)
    np.testing.assert_array_equal(tensors["layer.weight"],
                                  np.where(layer.mask(), layer.weight, 0))


def test_cancelled_before_it_had_a_mask(start_server, big_layer, folder):
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    busy = detach(cli, big_layer, *ENDLESS)
    queued = detach(cli, big_layer, "--method", "wanda")
    assert cli.run("status", queued, "--json").expect(0).json()["state"] == "QUEUED"
    cli.run("cancel", queued).expect(0)
    done = cli.run("fetch", queued, "--out", folder / "m.safetensors", "--json").expect(5)
    assert done.json()["state"] == "CANCELLED" and queued in done.sentence
    assert not (folder / "m.safetensors").exists()
    late = detach(cli, big_layer, "--method", "wanda", "--deadline", "1s")
    assert "deadline" in cli.run("watch", late).expect(5).sentence
    cli.run("cancel", busy).expect(0)


def before_the_deadline(cli, layer, *flags):
    """The result of an endless job with a deadline that it began well before."""
    def attempt(seconds):
        done = cli.run(*layer.submit("--json", *ENDLESS, *flags, "--deadline", f"{seconds}s"))
        return done.code == 0 and done.json()
    return in_time(attempt, 1)


def test_deadline_returns_the_best_mask_so_far(cli, big_layer):
    result = before_the_deadline(cli, big_layer)
    assert (result["state"], result["stop_reason"]) == ("SUCCEEDED", "DEADLINE")
    assert result["losses"]["final"] <= result["losses"]["warm_start"]
    reference.check_counts(big_layer.mask(), "per-row", 0.6)


def test_the_deadline_is_that_of_the_whole_sweep(cli, big_layer):
    result = before_the_deadline(cli, big_layer, "--sweep", "alpha=0,0.5")
    assert (result["state"], result["stop_reason"]) == ("SUCCEEDED", "DEADLINE")
    first, second = result["sweep"]
    assert first["result"]["stop_reason"] == "DEADLINE"
    # The first point may leave a moment, in which the second finds its warm start.
    assert "deadline" in (second["error"] or "") or second["result"]["stop_reason"] == "DEADLINE"


def test_cancel(cli, big_layer, folder):
    job = detach(cli, big_layer, *ENDLESS)
    wait_until(lambda: cli.run("status", job, "--json").json()["state"] == "RUNNING", "runs")
    cli.run("watch", "jobs/none").expect(3)
    assert job in cli.run("cancel", job).expect(0).out
    wait_until(lambda: cli.run("status", job, "--json").json()["state"] == "CANCELLED", "ends")
    cli.run("cancel", job).expect(0)
    assert "CANCELLED" in cli.run("watch", job).expect(0).out


def test_cancelled_under_an_attached_client(cli, big_layer):
    process = cli.start(*big_layer.submit(*ENDLESS, "--json"))

    def mine():
        return [entry["job"] for entry in jobs(cli) if entry["state"] == "RUNNING"]

    (job,) = wait_until(mine, "runs")
    cli.run("cancel", job).expect(0)
    result = finish(process).expect(0).json()  # it had a mask: that of the warm start at least
    assert (result["state"], result["stop_reason"]) == ("CANCELLED", "CANCELLED")
    reference.check_counts(big_layer.mask(), "per-row", 0.6)


def test_info(cli):
    done = cli.run("info").expect(0)
    for word in ("cpu", "sparsefw", "wanda", "8.0 GiB", "version"):
        assert word in done.out, done.out
    info = cli.run("info", "--json").expect(0).json()
    assert info["version"] and info["workers"] == 2


def test_health_is_asked_over_a_new_connection(start_server):
    server = start_server("--max-connections", "1")
    cli = Cli(server.address)
    assert cli.run("health").expect(0).out == "SERVING\n"
    assert cli.run("health", "--json").expect(0).json() == {"status": "SERVING"}
    # No token is sent, nor asked for.
    assert cli.run("health", env={"SPARSEFW_TOKEN": "in plain text"}).expect(0).out == "SERVING\n"
    with Client(server.address).channel as channel:
        grpc.channel_ready_future(channel).result(HANG)
        cli.run("health", "--timeout", "1s").refused(3, "no server could be reached")
    wait_until(lambda: cli.run("health", "--timeout", "1s").code == 0, "the connection is free")
    server.signal(signal.SIGSTOP)
    cli.run("health", "--timeout", "1s").refused(3, server.address)
    server.signal(signal.SIGCONT)
    assert server.stop() == 0


def test_a_server_that_drains_is_not_serving(start_server, big_layer):
    server = start_server("--drain-grace", "1h")
    cli = Cli(server.address)
    job = detach(cli, big_layer, *ENDLESS)
    wait_until(lambda: job in [one["job"] for one in jobs(cli) if one["state"] == "RUNNING"], "runs")
    server.signal(signal.SIGTERM)
    wait_until(lambda: "not serving" in cli.run("health", "--timeout", "1s").err, "it drains")
    cli.run("health").refused(3, "not serving")
    cli.run("cancel", job).expect(0)
    assert server.wait() == 0


def test_a_gram_is_uploaded_once_for_many_layers(cli, layer):
    first = cli.run(*layer.submit("--method", "wanda", "--keep-tensors")).expect(0)
    weight, gram = re.findall(r"^kept (tensors/\S+)", first.err, re.M)
    mask = layer.mask()
    named = ("submit", "--weights", weight, "--gram", gram, "--pattern", "per-row", "--sparsity",
             "0.6", "--method", "wanda")
    for _ in range(2):  # a job leaves what it did not bring
        again = cli.run(*named, "--out", layer.mask_file, "--overwrite").expect(0)
        assert "uploading" not in again.err
        assert (layer.mask() == mask).all()
    job = cli.run(*named, "--detach", "--mask-only", "--json").expect(0).json()["job"]
    done = cli.run("fetch", job, "--out", layer.mask_file, "--overwrite", "--out-weights",
                   layer.folder / "pruned.safetensors").expect(2)
    assert "has no pruned weight" in done.err
    unknown = cli.run("submit", "--weights", "tensors/0", *named[3:], "--out", layer.mask_file, "--overwrite")
    assert "tensors/0" in unknown.expect(3).err


def test_options_are_refused_before_anything_is_uploaded(cli, layer):
    first = cli.run(*layer.submit("--method", "wanda", "--keep-tensors")).expect(0)
    weight = re.search(r"^kept (tensors/\S+)", first.err, re.M)[1]
    # Only the server knows the shape of the weight: 32 inputs.
    for flags, words in ((["--weights", weight, "--pattern", "2:5"], ["32", "5"]),
                         (["--device", "cuda:99"], ["cuda:99"])):
        done = cli.run(*layer.submit("--method", "sparsefw", *flags,
                                     pattern="2:5" if "2:5" in flags else "per-row"))
        done.refused(3, *words)
        assert "uploading" not in done.err


def test_the_server_may_be_named_by_the_environment(shared_server):
    Cli().run("info", env={"SPARSEFW_SERVER": shared_server.address}).expect(0)


def test_help():
    done = Cli().run("--help").expect(0)
    for command in ("submit", "status", "watch", "fetch", "cancel", "list", "gram", "info"):
        assert command in done.out
    done = Cli().run("submit", "--help").expect(0)
    for flag in ("--weights", "--gram", "--activations", "--method", "--pattern", "--sparsity",
                 "--warm-start", "--alpha", "--iterations", "--step-rule", "--rel-gap", "--swaps",
                 "--report-every", "--deadline", "--detach", "--out", "--out-weights", "--json"):
        assert flag in done.out, flag


def test_of_several_addresses_one_that_answers_is_used(shared_server, layer):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        dead = "127.0.0.1:%d" % silent.getsockname()[1]
        cli = Cli(f"127.0.0.1:1,{dead},{shared_server.address}")
        assert cli.run(*layer.submit("--json", "--method", "wanda")).expect(0).json()["kept"]
        Cli(f"127.0.0.1:1,{dead}").run("info", "--timeout", "1s").refused(3, f"127.0.0.1:1,{dead}")
        Cli("127.0.0.1:1,").run("info").refused(2, "127.0.0.1:1,", "HOST:PORT")

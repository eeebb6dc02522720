"""The status page: the figures of /metrics, and no error in a real browser."""
import hashlib
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from support.layers import ENDLESS, Layer
from support.processes import HANG, Cli, wait_until

MARKUP = "<img src=x onerror=document.title=1>"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def get(server, path):
    with urllib.request.urlopen(f"http://{server.metrics}{path}", timeout=HANG) as response:
        return response.read().decode(), response.headers


def status(server):
    return json.loads(get(server, "/status.json")[0])


def metric(server, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", get(server, "/metrics")[0], re.MULTILINE)[1])


@pytest.fixture
def busy(start_server, folder):
    """One job runs, three wait, one has ended, one call was refused. All have labels, one of markup."""
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    layer = Layer(folder, 96, 128, seed=3)
    cli.run(*layer.submit("--method", "sparsefw", "--iterations", "40", "--label", "layer=0.attention")).expect(0)
    for i in range(4):
        cli.run(*layer.submit(*ENDLESS, "--detach", "--label", f"layer={i + 1}.mlp", "--label", f"note={MARKUP}",
                              out=False)).expect(0)
    cli.run("status", "jobs/none")
    wait_until(lambda: len((status(server)["running"] or [{"trace": []}])[0]["trace"]) > 2, "a trace")
    return server


def test_its_figures_are_those_of_the_metrics(busy):
    now = status(busy)
    assert now["ready"] and now["jobs"]["running"] == metric(busy, 'sparsefw_jobs{state="running"}') == 1
    assert now["jobs"]["queued"] == metric(busy, 'sparsefw_jobs{state="queued"}') == 3 == len(now["queue"])
    assert now["tensors"] == metric(busy, "sparsefw_tensors")
    assert now["tensor_memory"]["used"] == metric(busy, "sparsefw_memory_used_bytes") > 0
    job = now["running"][0]
    assert job["name"].startswith("jobs/") and job["method"] == "sparsefw" and job["iteration"] > 0
    assert 0 < job["reduction"] < 1
    assert job["labels"] == {"layer": "1.mlp", "note": MARKUP}
    assert [one["labels"]["layer"] for one in now["queue"]] == ["2.mlp", "3.mlp", "4.mlp"]
    losses = [point[2] for point in job["trace"]]
    assert losses[-1] < job["warm_start_loss"]
    assert losses == sorted(losses, reverse=True), "the best loss only falls"
    assert ("NOT_FOUND", "JOB_NOT_FOUND") in [(one["code"], one["reason"]) for one in now["refusals"]]


def test_ended_jobs_have_the_figures_of_the_cli(start_server, folder):
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    layer = Layer(folder, 32, 48, seed=5)
    results = [json.loads(cli.run(*layer.submit("--method", "sparsefw", "--iterations", "60", "--label", f"layer={i}",
                                                "--json")).expect(0).out) for i in range(22)]
    cli.run(*layer.submit(*ENDLESS, "--detach", out=False)).expect(0)
    job = wait_until(lambda: status(server)["running"], "it runs")[0]["name"]
    cli.run("cancel", job).expect(0)
    wait_until(lambda: not status(server)["running"], "it has ended")
    ended = status(server)["ended"]
    assert len(ended) == 20, "the last ones"
    assert ended[0]["name"] == job and (ended[0]["state"], ended[0]["reason"]) == ("cancelled", "CANCELLED")
    for shown, result in zip(ended[1:], reversed(results)):
        assert (shown["name"], shown["state"], shown["reason"]) == (result["job"], "succeeded", "ITERATIONS")
        assert shown["loss"] == pytest.approx(result["loss"], rel=1e-9)
        assert shown["certificate"] == pytest.approx(result["certificate"], rel=1e-9)
        assert 0 < shown["ran_s"] < HANG and abs(shown["end_time"] - time.time()) < HANG
    assert [one["labels"]["layer"] for one in ended[1:]] == [str(i) for i in range(21, 2, -1)]


def test_it_is_one_page_with_a_strict_policy(busy):
    page, headers = get(busy, "/")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(page) < 32 << 10

    class Links(html.parser.HTMLParser):
        found = []

        def handle_starttag(self, tag, attributes):
            self.found += [value for key, value in attributes if key in ("src", "href")]

    Links().feed(page)
    assert Links.found == ["data:,", "/metrics"], "no outside assets"


def test_names_and_labels_are_shown_to_nobody_where_there_are_tenants(start_server, folder):
    tokens = folder / "tokens"
    tokens.write_text("alice:" + hashlib.sha256(b"secret").hexdigest() + "\n")
    tokens.chmod(0o600)
    server = start_server("--tokens", tokens)
    cli = Cli(server.address)
    layer = Layer(folder, 32, 32, seed=3)
    label = ("--label", "layer=confidential")
    token = {"SPARSEFW_TOKEN": "secret"}
    cli.run(*layer.submit("--method", "wanda", *label), env=token).expect(0)
    cli.run(*layer.submit(*ENDLESS, "--detach", *label, out=False), env=token).expect(0)
    wait_until(lambda: status(server)["running"], "it runs")
    now = status(server)
    assert "name" not in now["running"][0] and [one["state"] for one in now["ended"]] == ["succeeded"]
    text = get(server, "/status.json")[0]
    for hidden in ("alice", "jobs/", "confidential", "labels"):
        assert hidden not in text


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_in_a_browser(busy, tmp_path):
    """Its script runs under its own policy, without an error, and shows the figures."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
               f"--user-data-dir={tmp_path}", "--virtual-time-budget=5000", "--window-size=420,1400"]
    url = f"http://{busy.metrics}/"
    shown = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=HANG)
    console = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert console == [], "no console error"
    body = re.sub(r"<(style|script)>.*?</\1>", "", shown.stdout, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body))
    assert "accepts work" in text
    assert re.search(r"\b1\s+running", text) and re.search(r"\b3\s+queued", text)
    assert "below the warm start" in text and "JOB_NOT_FOUND" in text
    assert "<img" not in body and text.count(f"note={MARKUP}") == 4, "markup is shown as text"
    assert all(f"layer={i}" in text for i in ("0.attention", "1.mlp", "4.mlp"))
    assert body.count("<polyline") == 2 and "best mask so far" in text and "relaxed mask" in text, "a legend"
    axis = r"% of the warm start's:.*?(\d[\d.]*)\s%\s.*?\s(\d[\d.]*)\s%\s+0\s+(\d[\d.]*[KMB]?\s+)+iteration"
    assert re.search(axis, text, re.DOTALL), "axes with numbers and units"
    ended = json.loads(get(busy, "/status.json")[0])["ended"][0]
    moment = time.strftime("%Y-%m-%d\xa0%H:%M:%S", time.gmtime(ended["end_time"]))
    figures = [f"{100 * ended[key]:.3f}\xa0%" for key in ("loss", "certificate")]
    assert all(one in text for one in ("(ITERATIONS)", moment, *figures))
    assert re.search("for\xa0\\d+\xa0s", text), "a time breaks nowhere"
    keep = os.environ.get("SPARSEFW_SCREENSHOT")
    if keep:
        time.sleep(1)
        subprocess.run([*command, f"--screenshot={keep}", url], check=True, timeout=HANG, capture_output=True)

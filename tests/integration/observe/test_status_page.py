"""The status page: the figures of /metrics, and no error in a real browser."""
import hashlib
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
    """One job runs, three wait, one call was refused."""
    server = start_server("--workers", "1")
    cli = Cli(server.address)
    layer = Layer(folder, 96, 128, seed=3)
    for _ in range(4):
        cli.run(*layer.submit(*ENDLESS, "--detach", out=False)).expect(0)
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
    losses = [point[2] for point in job["trace"]]
    assert losses == sorted(losses, reverse=True), "the best loss only falls"
    assert ("NOT_FOUND", "JOB_NOT_FOUND") in [(one["code"], one["reason"]) for one in now["refusals"]]


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


def test_names_are_shown_to_nobody_where_there_are_tenants(start_server, folder):
    tokens = folder / "tokens"
    tokens.write_text("alice:" + hashlib.sha256(b"secret").hexdigest() + "\n")
    tokens.chmod(0o600)
    server = start_server("--tokens", tokens)
    cli = Cli(server.address)
    layer = Layer(folder, 32, 32, seed=3)
    cli.run(*layer.submit(*ENDLESS, "--detach", out=False), env={"SPARSEFW_TOKEN": "secret"}).expect(0)
    wait_until(lambda: status(server)["running"], "it runs")
    assert "name" not in status(server)["running"][0]
    text = get(server, "/status.json")[0]
    assert "alice" not in text and "jobs/" not in text


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_in_a_browser(busy, tmp_path):
    """Its script runs under its own policy, without an error, and shows the figures."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
               f"--user-data-dir={tmp_path}", "--virtual-time-budget=5000", "--window-size=420,1400"]
    url = f"http://{busy.metrics}/"
    shown = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=HANG)
    console = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert console == [], "no console error"
    text = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|script)>.*?</\1>", "", shown.stdout, flags=re.DOTALL))
    assert "accepts work" in text
    assert re.search(r"\b1\s+running", text) and re.search(r"\b3\s+queued", text)
    assert "below the warm start" in text and "JOB_NOT_FOUND" in text
    assert "<polyline" in shown.stdout
    keep = os.environ.get("SPARSEFW_SCREENSHOT")
    if keep:
        time.sleep(1)
        subprocess.run([*command, f"--screenshot={keep}", url], check=True, timeout=HANG, capture_output=True)

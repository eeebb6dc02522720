"""Every expression of the dashboard, and every rule, has data in a real Prometheus that scrapes a server
under load, and the alert for a server that accepts nobody fires."""
import json
import math
import re
import subprocess
import time
import urllib.request

import grpc
import pytest

from conftest import SOURCE_DIR
from stack import Stack, concrete, missing
from support.processes import HANG, wait_until

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed, or not built: {missing()}")
DASHBOARD = json.loads((SOURCE_DIR / "deploy/grafana/sparsefw.json").read_text())
TARGETS = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"]
           for target in panel.get("targets", [])]
RULES = SOURCE_DIR / "deploy/prometheus/rules.yml"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack
        stack.check()


def finite(result):
    return [float(series["value"][1]) for series in result if math.isfinite(float(series["value"][1]))]


def without_data(stack, expressions):
    """Those that have none within what two servers under load take to do everything once."""
    deadline = time.monotonic() + HANG
    while True:
        stack.check()
        expressions = [one for one in expressions if not finite(stack.ask(one))]
        if not expressions or time.monotonic() > deadline:
            return expressions
        time.sleep(0.5)


def test_every_expression_of_the_dashboard_has_data(stack):
    assert len(TARGETS) > 40
    assert not without_data(stack, [concrete(expression) for _, expression in TARGETS])
    assert sum(tenant.ended for tenant in stack.tenants) > 5
    assert all(tenant.refused for tenant in stack.tenants)


def test_every_rule_has_data(stack):
    names = [line.split("record: ")[1] for line in RULES.read_text().splitlines() if "record: " in line]
    assert len(names) > 5
    assert not without_data(stack, names)


def test_of_a_server_that_is_well_no_alert_is_pending(stack):
    # Whatever its clients do wrong.
    wait_until(lambda: finite(stack.ask('rate(sparsefw_rpc_refused_total{reason="CHECKSUM_MISMATCH"}[5m]) > 0')),
               "refusals")

    def pending():
        alerts = json.loads(stack.get("/api/v1/alerts"))["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["labels"].get("server") == "busy"}

    # The rules may have been evaluated between the first scrape of the server and its first probe.
    wait_until(lambda: stack.ask('probe_success{job="sparsefw-grpc", server="busy"}'), "a probe")
    wait_until(lambda: not pending(), "no alert")


def test_alive_but_not_accepting(stack):
    query = 'ALERTS{alertname="SparsefwNotAccepting"}'
    assert not stack.ask(query)
    # Its only connection is taken; its metrics answer all the same.
    channel = grpc.insecure_channel(stack.cards.address, [("grpc.enable_http_proxy", 0)])
    grpc.channel_ready_future(channel).result(HANG)
    [alert] = wait_until(lambda: stack.ask(query), "the alert")
    assert alert["metric"]["server"] == "cards" and alert["metric"]["alertstate"] == "pending"
    with urllib.request.urlopen(f"http://{stack.cards.metrics}/healthz", timeout=HANG) as answer:
        assert answer.status == 200
    channel.close()
    wait_until(lambda: not stack.ask(query), "the end of the alert")


def test_the_document_names_every_metric(stack):
    section = (SOURCE_DIR / "docs/metrics.md").read_text().split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = set(re.findall(r"`([a-z0-9_]+)(?:{[^}]*})?`", " ".join(rows)))
    # Of a server with TLS; of one whose disk is full while jobs run.
    documented -= {"tls_certificate_expiry_timestamp_seconds", "job_background_errors_total"}
    live = set()
    for server in (stack.busy, stack.cards):
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
            live |= set(re.findall(r"^# TYPE sparsefw_(\S+) ", answer.read().decode(), re.M))
    assert documented == live


def test_metrics_are_as_prometheus_wants_them(stack):
    """Metrics of the busy server: names, units, help; and labels of few values, none a client's."""
    for server in (stack.busy, stack.cards):
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
            text = answer.read().decode()
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
        assert done.returncode == 0 and not done.stderr + done.stdout, done.stderr
        for secret in ("alice", "bob", "jobs/", "tensors/", "uploads/"):
            assert secret not in text
        assert len(text.splitlines()) < 3000

"""The files of deploy/ by themselves."""
import json
import re
import shutil
import subprocess

import pytest

import dashboard
from conftest import SOURCE_DIR
from support.processes import BIN_DIR

DEPLOY = SOURCE_DIR / "deploy"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_rules_and_alerts():
    promtool("check", "config", DEPLOY / "prometheus/prometheus.yml")
    promtool("check", "config", "--syntax-only", DEPLOY / "compose/prometheus.yml")
    promtool("test", "rules", SOURCE_DIR / "tests/deploy/alerts_test.yml")


def test_every_alert_is_tested():
    names = re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus/alerts.yml").read_text())
    tested = (SOURCE_DIR / "tests/deploy/alerts_test.yml").read_text()
    assert len(names) > 10
    for name in names:
        # Silent where all is well, and heard where it is not.
        assert tested.count(f"alertname: {name}}}") >= 1, name
        assert re.search(rf"alertname: {name}\n\s+exp_alerts:\n\s+- exp_labels", tested), name


def test_every_alert_leads_to_its_section_of_the_runbook():
    rules = re.split(r"- alert: ", (DEPLOY / "prometheus/alerts.yml").read_text())[1:]
    sections = re.findall(r"^## (\w+)$", (SOURCE_DIR / "docs/runbook.md").read_text(), re.M)
    assert sorted(rule.split("\n")[0] for rule in rules) == sorted(sections)
    for rule in rules:
        name = rule.split("\n")[0]
        assert re.search(r'\n          description: ".{20,}"\n', rule), name
        assert f"\n          runbook_url: https://sparsefw.example/runbook.html#{name.lower()}\n" in rule, name


def test_the_dashboard_is_what_its_program_makes():
    committed = (DEPLOY / "grafana/sparsefw.json").read_text()
    assert json.loads(committed) == dashboard.dashboard(), \
        "deploy/grafana/dashboard.py > deploy/grafana/sparsefw.json"


def test_the_dashboard_is_well_formed():
    panels = dashboard.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(cells)[0] < 24, f"{panel['title']} lies over another"
        taken |= cells
        for target in panel.get("targets", []):
            assert 'server=~"$server"' in target["expr"], panel["title"]


def test_pods_have_the_time_that_a_drain_takes():
    base = (DEPLOY / "kubernetes/base/stateful-set.yaml").read_text()
    configuration = (DEPLOY / "kubernetes/base/kustomization.yaml").read_text()
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", base)[1])
    before = int(re.search(r'\["sleep", "(\d+)"\]', base)[1])
    drain = int(re.search(r"SPARSEFW_DRAIN_GRACE=(\d+)s", configuration)[1])
    fetch = int(re.search(r"SPARSEFW_FETCH_GRACE=(\d+)s", configuration)[1])
    assert grace >= before + drain + fetch + 30


def test_the_configuration_file_has_every_key_with_its_default():
    """As --help says. A line that ends in "# example" has no default."""
    done = subprocess.run([BIN_DIR / "sparsefw-server", "--help"], capture_output=True, text=True, check=True)
    flags = dict(re.findall(r"^  --([a-z-]+)(?: [^=\n]*?(?:=(.*?))?)?(?:  .*)?$", done.stdout, re.M))
    lines = re.findall(r'^#([a-z-]+) = "?([^"\n]+?)"?( +# example)?$', (DEPLOY / "server.conf").read_text(), re.M)
    others = {"config", "state-dir", "spool-dir", "discard-unmatched", "version"}
    assert {key for key, _, _ in lines} == flags.keys() - others
    known = {key: value for key, value, example in lines if not example and value != "false"}
    assert known == {key: flags[key] for key in known}
    for key, _, example in lines:
        assert bool(example) == (key not in known and not key.startswith("insecure")), key

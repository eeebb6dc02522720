"""Part of script/deploy-check: what needs libraries of PyPI. Every PromQL expression is parsed,
Grafana's types read the dashboard, and the compose files hold what compose knows."""
import json
import re
import sys
from pathlib import Path

import promql_parser
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVICE_KEYS = {"image", "restart", "read_only", "cap_drop", "security_opt", "stop_grace_period",
                "environment", "ports", "volumes", "ulimits", "command", "deploy"}


def expressions():
    board = json.loads((DEPLOY / "grafana/sparsefw.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "1m")
    for name in ("rules", "alerts"):
        for group in yaml.safe_load((DEPLOY / f"prometheus/{name}.yml").read_text())["groups"]:
            yield from (rule["expr"] for rule in group["rules"])


def check_dashboard():
    """Grafana's types read it, and write nothing else."""
    text = json.loads((DEPLOY / "grafana/sparsefw.json").read_text())
    read = json.loads(JSONEncoder(sort_keys=True).encode(dashboard.Dashboard.from_json(text)))
    kinds = {panel["type"] for panel in read["panels"]}
    assert kinds == {"row", "timeseries", "stat", "heatmap"}, kinds
    ours, theirs = ({panel["title"]: panel for panel in one["panels"]} for one in (text, read))
    assert set(ours) == set(theirs)
    for title, panel in ours.items():
        lost = set(panel) - set(theirs[title])
        assert not lost, f"{title}: Grafana knows no {lost}"


def check_compose():
    files = [yaml.safe_load((DEPLOY / f"compose/{name}").read_text())
             for name in ("compose.yaml", "compose.gpu.yaml")]
    for compose in files:
        for name, service in compose["services"].items():
            assert set(service) <= SERVICE_KEYS, f"{name}: {set(service) - SERVICE_KEYS}"
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                known = source in files[0]["volumes"] or (DEPLOY / "compose" / source).exists()
                assert known, f"{name}: there is no {source}"
    flags = (DEPLOY.parent / "docs/cli.md").read_text()
    for variable in re.findall(r"^\s+SPARSEFW_([A-Z_]+):", (DEPLOY / "compose/compose.yaml").read_text(), re.M):
        assert f"--{variable.lower().replace('_', '-')}" in flags, variable


def main():
    count = 0
    for expression in expressions():
        promql_parser.parse(expression)
        count += 1
    assert count > 50
    check_dashboard()
    check_compose()
    print(f"{count} expressions")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a search in the site finds: by lunr over the index that the site's own lunr reads, with its boosts."""

import json
import re
from pathlib import Path

import pytest
from lunr import lunr

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "build/site/search/search_index.json"


@pytest.fixture(scope="module")
def search():
    """search(words) -> places, the best first."""
    found = json.loads(INDEX.read_text())
    fields = [{"field_name": name, "boost": found["config"]["fields"][name]["boost"]} for name in ("title", "text")]
    sections = [({name: one[name] for name in ("location", "title", "text")}, {"boost": one.get("boost", 1)})
                for one in found["docs"]]
    assert len(sections) > 500
    index = lunr(ref="location", fields=fields, documents=sections)
    return lambda words: [one["ref"] for one in index.search(words)]


def reasons():
    return re.findall(r'\{"([A-Z0-9_]+)", ReasonKind::', (ROOT / "core/include/sparsefw/reason.h").read_text())


def test_every_reason_of_a_refusal_is_found_first(search):
    names = reasons()
    assert len(names) > 80
    places = {name: search(name)[:1] for name in names}
    assert places == {name: [f"errors.html#{name.lower()}"] for name in names}


@pytest.mark.parametrize("words, place", [
    ("upload my gram matrix", "own-data.html#upload-a-gram-matrix"),
    ("forward hook", "own-data.html#a-pytorch-layer"),
    ("rollback", "upgrade.html#rollback"),
    ("restore backup", "backup.html#restore"),
    ("which preset", "choosing.html#preset"),
    ("replace certificate", "identity.html#tls"),
])
def test_what_people_look_for_is_on_the_first_page(search, words, place):
    first = search(words)[:5]
    assert place in first


def test_every_alert_is_found_first(search):
    names = re.findall(r"- alert: (\w+)", (ROOT / "deploy/prometheus/alerts.yml").read_text())
    assert len(names) > 10
    for name in names:
        assert search(name)[0] == f"runbook.html#{name.lower()}"

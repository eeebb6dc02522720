"""The parts of script/site on pages made for them."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "script/site"))

import check  # noqa: E402
import dialect  # noqa: E402
import hooks  # noqa: E402
import markdown  # noqa: E402


def html(text):
    return markdown.markdown(dialect.for_python_markdown(text), extensions=["pymdownx.superfences", "sane_lists", "tables"])


def test_links_and_anchors_are_followed(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a> <a href="#here">a</a> <p id="here"><img src="p.png">'
                                     '<a href="https://elsewhere.example/">e</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html#gone">a</a> <a href="c.html">c</a> <a href="/etc">d</a>')
    (tmp_path / "p.png").write_text("")
    wrong, followed, elsewhere = check.check(tmp_path)
    assert (followed, elsewhere) == (6, 1)
    assert wrong == ["b.html: /etc: there is no such file", "b.html: a.html#gone: there is no such anchor",
                     "b.html: c.html: there is no such file"]


def test_items_hold_what_is_indented_below_them():
    made = html("1. One:\n   ```\n   code\n   ```\n2. Two\n   goes on\n\n   | a | b |\n   |---|---|\n   | 1 | 2 |\n3. Three\n   - inner\n     goes on\n")
    assert made.count("<ol>") == 1 and made.count("<li>") == 4 and made.count("<table>") == 1
    assert "<code>code\n</code>" in made and re.search(r"<li>inner\s+goes on</li>", made)
    assert made.index("<table>") < made.index("Three")


def test_a_bar_in_the_code_of_a_table():
    made = html("| a | b |\n|---|---|\n| `SIZE\\|<N>` | `c` |\n")
    assert made.count("<td>") == 2 and "<code>SIZE&#124;&lt;N&gt;</code>" in made


@pytest.mark.parametrize("text, items", [("Text:\n- a\n- b", 2), ("Text\n2024. It was", 0), ("a\n\n- b\n\ntext\n\n- c", 2)])
def test_lists_begin_where_github_begins_them(text, items):
    assert html(text).count("<li>") == items


def test_links_lead_to_pages_of_the_site():
    path = hooks.repository_path
    assert path("index.md", "docs/cli.md") == "docs/cli.md" and hooks.site_path("docs/cli.md") == "cli.md"
    assert hooks.site_path(path("operations.md", "../CHANGELOG.md")) == "changelog.md"
    assert hooks.site_path(path("adr/0001-backend-seam.md", "../adr")) == "adr/index.md"
    assert hooks.site_path(path("scale.md", "../deploy/slurm/prune-model.sbatch")) is None
    assert path("index.md", "../outside") is None
    assert hooks.relative("adr/0001-backend-seam.md", "cli.md") == "../cli.md"

"""docs/cli.md has the flags that --help has. SPARSEFW_WRITE_PAGES=1 writes its table anew."""
import os
import re
import subprocess
from pathlib import Path

from support.processes import BIN_DIR, clean_environment

PAGE = Path(__file__).resolve().parents[3] / "docs/cli.md"
BEGIN, END = "<!-- submit-flags:begin -->\n", "<!-- submit-flags:end -->"


def rows(text):
    """A row for every group of the help, then one for each of its flags."""
    found = []
    for group, entries in re.findall(r"(?m)^(\S[^\n]*):\n((?:  .*\n)+)", text):
        if not re.search(r"(?m)^  (-\w, )?--", entries):
            continue
        found.append((f"**{group}**", ""))
        for entry in re.findall(r"(?m)^  -.*\n(?:   .*\n)*", entries):
            flag, _, help_text = re.sub(r"\n {26}", "  ", entry.strip(), count=1).partition("  ")
            found.append((f"`{flag}`", " ".join(help_text.split())))
    return found


def table(text):
    cells = [(left.replace("|", "\\|"), right.replace("|", "\\|")) for left, right in rows(text)]
    return "".join(["| flag of submit | |\n|---|---|\n", *(f"| {left} | {right} |\n" for left, right in cells)])


def test_every_option_has_a_flag():
    page = (PAGE.parent / "api.md").read_text()
    options = re.findall(r"(?m)^\| `([\w.]+)` \|", page.partition("<!-- options:begin -->")[2].partition("<!-- options:end -->")[0])
    flags = (PAGE.parents[1] / "client/cpp/cli/flags/spec_flags.cc").read_text()
    assert "sparsefw.alpha" in options
    assert [path for path in options if f'"{path}"' not in flags] == []


def test_the_flags_of_submit():
    text = subprocess.run([BIN_DIR / "sparsefw-cli", "submit", "--help"], capture_output=True, text=True,
                          env=clean_environment(), check=True).stdout
    expected = table(text[:text.index("Connection:")])
    assert "`--joint-excluded SHARE`" in expected and "`-q, --quiet`" in expected
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if os.environ.get("SPARSEFW_WRITE_PAGES"):
        PAGE.write_text(page[:begin] + expected + page[end:])
    else:
        assert page[begin:end] == expected, "SPARSEFW_WRITE_PAGES=1 writes it"

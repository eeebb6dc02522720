"""The pages: docs/cli.md has the flags that --help has (SPARSEFW_WRITE_PAGES=1 writes its table anew), and commands
in code exist. The tutorial's print what it says."""
import functools
import os
import re
import subprocess
from pathlib import Path

import pytest

from support.processes import BIN_DIR, clean_environment

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/cli.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^|(?<!-u)[\s/;$])(sparsefw-cli [a-z]+|sparsefw-server|script/[a-z-]+)(?=\s|$)([^|;#\n]*)")
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


def code(page):
    """Fenced blocks and spans of code, with lines that go on put together."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"(?ms)^ *```[a-z]*\n(.*?)^ *```$", text)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
    return "\n".join([*blocks, *spans])


@functools.cache
def known(program):
    """What a program says of itself."""
    if program.startswith("script/"):
        passed_on = known("sparsefw-server") if program == "script/server" else ""
        return (ROOT / program).read_text() + passed_on
    name, *command = program.split()
    done = subprocess.run([BIN_DIR / name, *command, "--help"], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout


def test_commands_in_the_pages_exist():
    found, wrong = 0, []
    for page in PAGES:
        for program, words in COMMAND.findall(code(page)):
            for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", words):
                found += 1
                if not re.search(rf"{flag}(?![\w-])", known(program)):
                    wrong.append(f"{page.name}: {program} has no {flag}")
    assert found > 50
    assert not wrong


@pytest.mark.parametrize("block", ["first-layer", "first-layer-balanced"])
def test_the_first_layer(shared_server, tmp_path, block):
    """Loss, reduction, certificate and sparsity to the digit."""
    page = (ROOT / "docs/tutorial-layer.md").read_text()
    commands = {name: page.split(f"<!-- {name} -->\n```\n")[1].split("```")[0] for name in ("first-layer", block)}
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/bin").symlink_to(BIN_DIR)
    done = subprocess.run(["bash", "-euc", "".join(commands.values())], capture_output=True, text=True, cwd=tmp_path,
                          env={**clean_environment(), "SPARSEFW_SERVER": shared_server.address})
    assert done.returncode == 0, done.stderr
    if block == "first-layer":
        shown = page.split("```\nloss ")[1].split("\n\n")[0]
        assert f"loss {shown}\n" in done.stdout
        assert (tmp_path / "mask.safetensors").exists() and (tmp_path / "pruned.safetensors").exists()
    else:
        losses = [float(loss) for loss in re.findall(r"(?m)^loss +([\d.]+) %", done.stdout)]
        assert 0.6 < losses[1] / losses[0] < 0.7  # "a third less"
        assert re.search(r"(?m)^preset +balanced$", done.stdout)

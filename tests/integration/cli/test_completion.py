"""Bash completion of both programs, in bash itself, against what --help prints."""
import re
import subprocess
from pathlib import Path

import pytest

from support.processes import BIN_DIR, clean_environment

FILES = Path(__file__).resolve().parents[3] / "client/cpp/cli/completion"
COMMANDS = ["submit", "status", "watch", "fetch", "cancel", "delete", "list", "gram",
            "info", "health"]
FILE_FLAGS = {"--weights", "--gram", "--activations", "--warm-mask", "--saliency", "--out",
              "--out-weights", "--tls-ca", "--tls-cert", "--tls-key", "--token-file"}
PATHS = ("FILE", "FOLDER", "PATH")


def complete(program, *words, folder=None):
    """What bash offers behind `program words...`; bash splits words at ':' and '='."""
    split = [part for word in words for part in (re.split("([:=])", word) if word else [""])
             if part or not word]
    script = f"""
      source {FILES / program}.bash
      COMP_WORDS=({program} "$@") COMP_CWORD=$#
      $(complete -p {program} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
      printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", *split], capture_output=True,
                          text=True, cwd=folder, check=True,
                          env={**clean_environment(), "PATH": f"{BIN_DIR}:/usr/bin:/bin"})
    assert done.stderr == "", done.stderr
    return [line for line in done.stdout.split("\n") if line]


def help_of(program, *command):
    return subprocess.run([str(BIN_DIR / program), *command, "--help"], capture_output=True,
                          text=True, env=clean_environment(), check=True).stdout


def flags_of(text):
    """Flag -> what its entry says of its value."""
    entries = re.findall(r"(?m)^  (?:-\w, ?)?(--[\w-]+)(?: (\S+))?(?:  |$)", text)
    return {flag: value for flag, value in entries}


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_are_those_of_the_help(command):
    expected = flags_of(help_of("sparsefw-cli", command))
    assert "--server" in expected
    assert sorted(complete("sparsefw-cli", command, "--")) == sorted(expected)


def test_commands_are_those_of_the_help():
    text = help_of("sparsefw-cli")
    listed = re.findall(r"(?m)^  ([a-z-]+) ", text[text.index("Subcommands:"):])
    assert sorted(listed) == sorted(COMMANDS)
    assert sorted(complete("sparsefw-cli", "")) == sorted(COMMANDS)
    assert complete("sparsefw-cli", "su") == ["submit"]
    assert sorted(complete("sparsefw-cli", "--")) == sorted(flags_of(text))


def test_values_are_those_of_the_help():
    found = set()
    for command in COMMANDS:
        for flag, values in flags_of(help_of("sparsefw-cli", command)).items():
            if "|" not in values:
                continue
            expected = values.split("|")
            offered = complete("sparsefw-cli", command, flag, "")
            # A word with capitals stands for examples.
            words = {value for value in expected if value == value.lower() or flag == "--dtype"}
            examples = set(offered) - words
            assert words <= set(offered) and (examples == set()) == (len(words) == len(expected)), flag
            assert all(re.fullmatch(r"(\d+|cuda):\d+", value) for value in examples), flag
            found.add(flag)
    assert found >= {"--method", "--pattern", "--step-rule", "--warm-start", "--precision",
                     "--state", "--dtype"}


def test_every_flag_with_a_value_is_known(folder):
    """A flag's value is a file, one of a list, a sweep or free text; never a list of flags."""
    (folder / "w.safetensors").touch()
    for command in COMMANDS:
        for flag, value in flags_of(help_of("sparsefw-cli", command)).items():
            # Behind a switch the next word may be a flag, behind a flag with a value not.
            offered = complete("sparsefw-cli", command, flag, "-", folder=folder)
            assert bool(offered) == (not value), (command, flag, value, offered)
            files = complete("sparsefw-cli", command, flag, "w.sa", folder=folder)
            assert (files == ["w.safetensors"]) == value.startswith(PATHS), (command, flag)
            assert (flag in FILE_FLAGS) == value.startswith(PATHS)


@pytest.mark.parametrize("words, expected", [
    (["submit", "--method", "sp"], ["sparsegpt", "sparsefw"]),
    (["submit", "--method=wa"], ["wanda"]),
    (["submit", "--method=", ], ["magnitude", "wanda", "ria", "sparsegpt", "sparsefw",
                               "alps"]),
    (["submit", "--pattern", "2:"], ["4"]),
    (["submit", "--pattern", "2:4"], ["4"]),
    (["submit", "--sweep", "sw"], ["swaps="]),
    (["submit", "--sweep", "swaps=o"], ["on", "off"]),
    (["submit", "--sweep", "method=wanda,r"], ["wanda,ria"]),
    (["submit", "--alpha", ""], []),
    (["submit", "--no-k"], ["--no-keep-fixed"]),
    (["list", "--state", "f"], ["failed"]),
])
def test_words(words, expected):
    assert complete("sparsefw-cli", *words) == expected


def test_server_flags_are_those_of_the_help():
    expected = re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", help_of("sparsefw-server"))
    assert len(expected) > 15
    assert sorted(complete("sparsefw-server", "--")) == sorted(expected)
    assert complete("sparsefw-server", "--log-format", "") == ["text", "json"]

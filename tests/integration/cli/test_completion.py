"""Completion of both programs in the shells themselves, against what --help prints."""
import os
import pty
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from support import safetensors
from support.layers import Layer
from support.processes import BIN_DIR, HANG, Cli, clean_environment

PROGRAMS = ("sparsefw-cli", "sparsefw-server")
FILES = Path(__file__).resolve().parents[3] / "client/cpp/cli/completion"
COMMANDS = ["submit", "status", "watch", "fetch", "cancel", "delete", "list", "gram",
            "info", "health"]
FILE_FLAGS = {"--weights", "--gram", "--activations", "--warm-mask", "--saliency", "--out",
              "--out-weights", "--tls-ca", "--tls-cert", "--tls-key", "--token-file"}
PATHS = ("FILE", "FOLDER", "PATH")


def complete(program, *words, folder=None, path=BIN_DIR):
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
                          env={**clean_environment(), "PATH": f"{path}:/usr/bin:/bin"})
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
    (["submit", "--sweep", "alpha=0."], ["0.5", "0.9"]),
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


def test_tensors_behind_a_file(folder):
    layer = Layer(folder, 8, 16, seed=1)
    safetensors.write(folder / "two.safetensors", {"a.weight": layer.weight, "b.weight": layer.weight})
    (folder / "broken.safetensors").write_bytes(b"\xff" * 64)
    for words, expected in (
            (["submit", "--weights", "two.safetensors:"], ["a.weight", "b.weight"]),
            (["submit", "--weights", "two.safetensors:b"], ["b.weight"]),
            (["submit", "--gram=g.safetensors:"], ["gram"]),
            (["submit", "--gram", "none.safetensors:"], []),
            (["submit", "--gram", "broken.safetensors:"], []),
            (["submit", "--out", "two.safetensors:"], [])):
        assert complete("sparsefw-cli", *words, folder=folder) == expected, words


def test_jobs_of_the_server_that_the_line_names(shared_server, folder):
    layer = Layer(folder, 8, 16, seed=1)
    cli = Cli(shared_server.address)
    job = cli.run(*layer.submit("--method", "wanda", "--json")).expect(0).json()["job"]
    for command in ("status", "watch", "fetch", "cancel", "delete"):
        assert job in complete("sparsefw-cli", command, "--server", shared_server.address, "jobs/")
        assert complete("sparsefw-cli", command, "--server", shared_server.address, job[:-2]) == [job]
    assert complete("sparsefw-cli", "status", "--server", "127.0.0.1:1", "jobs/") == []
    assert complete("sparsefw-cli", "list", "--server", shared_server.address, "jobs/") == []


@pytest.fixture
def share(folder):
    """The completions where the package puts them."""
    for source, place in (("words", "sparsefw/completion/words"), ("sparsefw.zsh", "zsh/vendor-completions/_sparsefw"),
                          *((f"{program}.bash", f"bash-completion/completions/{program}") for program in PROGRAMS),
                          *(("sparsefw.fish", f"fish/vendor_completions.d/{program}.fish") for program in PROGRAMS)):
        (folder / "share" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / source, folder / "share" / place)
    return folder / "share"


SHELL_WORDS = [
    ("sparsefw-cli su", ["submit"]),
    ("sparsefw-cli submit --method sp", ["sparsefw", "sparsegpt"]),
    ("sparsefw-cli submit --method=wa", ["--method=wanda"]),
    ("sparsefw-cli submit --pattern 2:", ["2:4"]),
    ("sparsefw-cli submit --weights two.sa", ["two.safetensors"]),
    ("sparsefw-cli submit --weights two.safetensors:a", ["two.safetensors:a.weight"]),
    ("sparsefw-server --log-format t", ["text"]),
    ("sparsefw-cli submit --weights evil.safetensors:", ["evil.safetensors:$(touch${IFS}made)"]),
]


def write_files(folder):
    safetensors.write(folder / "two.safetensors", {"a.weight": np.zeros((2, 2), "<f4")})
    safetensors.write(folder / "evil.safetensors", {"$(touch${IFS}made)": np.zeros((2, 2), "<f4")})


def in_shell(command, folder, **options):
    env = {**clean_environment(), "PATH": f"{BIN_DIR}:/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=True, **options).stdout


def hostile(text):
    """Runs as `sh` where a shell expands it."""
    return [f"a$({text})", f"a`{text}`", f"a;{text};", f"a'{text}'", "a b"]


MAKES_A_FILE = "touch${IFS}made"


def bash_line(share, folder, line):
    """The line as bash leaves it behind a tab."""
    script = f"source {share}/bash-completion/completions/sparsefw-cli; PS1=; " + (
        """keep() { printf %s "$READLINE_LINE" >line; exit; }; bind -x '"\\C-x": keep'\n""")
    main, terminal = pty.openpty()
    env = {**clean_environment(), "PATH": f"{BIN_DIR}:/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb"}
    shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=terminal, stdout=terminal,
                             stderr=terminal, cwd=folder, env=env, start_new_session=True)
    os.close(terminal)
    os.write(main, f"{script}{line}\t\x18".encode())
    try:
        while os.read(main, 65536):
            pass
    except OSError:  # the other side is closed
        pass
    os.close(main)
    shell.wait(timeout=HANG)
    return (folder / "line").read_text()


def test_names_that_a_shell_would_run(share, folder):
    """Tensors of a downloaded file, files, words of the line and jobs of a server."""
    names = hostile(MAKES_A_FILE)
    for index, name in enumerate(names):
        safetensors.write(folder / f"evil{index}.safetensors", {name: np.zeros((2, 2), "<f4")})
        (folder / f"file{name}").touch()
        words = ["sparsefw-cli", "submit", "--weights", f"evil{index}.safetensors:"]
        assert complete(*words, folder=folder) == [name]
        assert complete("sparsefw-cli", "submit", "--weights", f"file{name}", folder=folder) == [f"file{name}"]
        # As sed would take it from the line.
        complete("sparsefw-cli", "submit", f"x//;e{MAKES_A_FILE}", "", folder=folder)
        complete("sparsefw-cli", "submit", "--sweep", "x//;etouch\tmade;=", folder=folder)
        line = bash_line(share, folder, " ".join(words))
        assert shlex.split(line, posix=True) == [*words[:-1], words[-1] + name]
        # Nor once the line is run.
        subprocess.run(["bash", "-c", "sparsefw-cli() { :; }; " + line], cwd=folder, check=True)
        assert not (folder / "made").exists(), name


def test_jobs_that_a_shell_would_run(folder):
    """A program in place of sparsefw-cli lists what a server that is not to be trusted might send."""
    program = folder / "sparsefw-cli"
    names = [f"jobs/{name}" for name in hostile(MAKES_A_FILE) if " " not in name]
    listed = folder / "listed"
    listed.write_text("".join(f"{name} QUEUED\n" for name in names))
    program.write_text(f'#!/bin/sh\n[ "$1" = list ] && exec cat {listed}\nexec {BIN_DIR}/sparsefw-cli "$@"\n')
    program.chmod(0o755)
    assert complete("sparsefw-cli", "status", "jobs/", folder=folder, path=folder) == names
    assert not (folder / "made").exists()


def test_fish(share, folder):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    write_files(folder)
    for line, expected in SHELL_WORDS:
        program = line.split()[0]
        script = f"source {share}/fish/vendor_completions.d/{program}.fish; complete -C '{line}'"
        assert sorted(in_shell(["fish", "-c", script], folder).split()) == expected, line
        assert not (folder / "made").exists(), line


def test_zsh(share, folder):
    """Zsh completes only for people: a terminal of its own types the line, a tab and a return."""
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    write_files(folder)
    for line, expected in SHELL_WORDS:
        if len(expected) > 1:
            continue
        # The line as it is after the tab goes into a file.
        script = f"""
          zmodload zsh/zpty
          zpty shell zsh -f -i
          zpty -w shell 'PS1=; fpath=({share}/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D'
          zpty -w shell 'keep() {{ print -r -- "$BUFFER" >{folder}/line; exit }}; zle -N keep; bindkey "^X" keep'
          zpty -w -n shell {shlex.quote(line)}$'\\t\\x18'
          while zpty -t shell; do zpty -r shell ignored || break; done"""
        (folder / "line").unlink(missing_ok=True)
        in_shell(["zsh", "-f", "-c", script], folder, timeout=HANG)
        *before, _ = line.split()
        assert shlex.split((folder / "line").read_text()) == [*before, *expected], line
        assert not (folder / "made").exists(), line

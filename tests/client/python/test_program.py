"""The program `sparsefw`."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import sparsefw
from layers import Layer
from sparsefw import _cli, _files
from sparsefw._commands.plot import Trace
from support import reference
from support.processes import BIN_DIR, clean_environment


@pytest.fixture
def files(folder):
    layer = Layer()
    save_file({"layer.weight": layer.weight}, folder / "w.safetensors")
    save_file({"gram": layer.gram, "activations": layer.activations}, folder / "x.safetensors")
    return layer, folder


def run(*words):
    source = Path(_cli.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "sparsefw", *map(str, words)], capture_output=True, text=True, check=False,
        env={**clean_environment(), "PYTHONPATH": str(source),
             "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")})


def test_prune_with_a_server_of_its_own(files):
    layer, folder = files
    done = run("prune", "--server", "auto", "--weights", folder / "w.safetensors", "--gram",
               f"{folder}/x.safetensors:gram", "--sparsity", 0.6, "--iterations", 50, "--out",
               folder / "m.safetensors", "--out-weights", folder / "p.safetensors", "--json", "-q")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    mask = load_file(folder / "m.safetensors")["mask"]
    reference.check_counts(mask, "per-row", 0.6)
    assert facts["losses"]["final"] == pytest.approx(layer.loss(mask), rel=1e-6)
    assert facts["loss"] == facts["losses"]["final"] / facts["losses"]["full"]
    assert facts["certificate"] == facts["losses"]["lower_bound"] / facts["losses"]["final"]
    assert facts["sparsity"] == 1 - mask.mean()
    assert (load_file(folder / "p.safetensors")["layer.weight"] == layer.weight * mask).all()


def test_prune_from_activations(shared_server, files, capsys):
    _, folder = files
    code = _cli.main(["prune", "--server", shared_server.address, "--weights",
                      f"{folder}/w.safetensors:layer.weight", "--activations",
                      f"{folder}/x.safetensors:activations", "--pattern", "2:4", "--method", "wanda",
                      "--out", f"{folder}/m.safetensors"])
    assert code == 0
    out = capsys.readouterr().out
    assert "768 weights removed; 384 kept" in out
    assert out.startswith("loss     ")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"--weights": "{folder}/none.safetensors"}, 2, "cannot be read"),
        ({"--weights": "{folder}/w.safetensors:nope"}, 2, 'it holds "layer.weight"'),
        ({"--gram": "{folder}/x.safetensors"}, 2, "which tensor is not said"),
        ({"--sparsity": "1.5"}, 3, "sparsity"),
        ({"--method": "best"}, 2, '"sparsefw"'),
    ],
)
def test_errors_are_one_sentence(shared_server, files, capsys, change, code, words):
    _, folder = files
    flags = {"--server": shared_server.address, "--weights": "{folder}/w.safetensors",
             "--gram": "{folder}/x.safetensors:gram", "--sparsity": "0.5", "--out": "{folder}/m"}
    flags.update(change)
    found = _cli.main(["prune", *(part.format(folder=folder) for pair in flags.items() for part in pair)])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("sparsefw: ")]
    assert (found, out, len(lines)) == (code, "", 1)
    assert words in lines[0]


def test_bfloat16_survives_files(folder):
    bits = np.arange(6, dtype=np.uint16).tobytes()
    _files.save(str(folder / "b"), {"w": (bits, "bfloat16", (2, 3))}, {"a": "b"})
    buffer, name = _files.open_tensor(str(folder / "b"))
    assert (bytes(buffer.data), buffer.dtype, buffer.shape, name) == (bits, "bfloat16", (2, 3), "w")


def test_a_file_that_is_not_written_to_its_end_is_as_before(folder):
    """A full disk, or Ctrl-C, in the second tensor."""
    path = folder / "mask.safetensors"
    good = {"mask": (bytes(8), "bool", (2, 4))}
    _files.save(str(path), good, {})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        _files.save(str(path), {"a": (bytes(8), "bool", (8,)), "b": ("text", "bool", (4,))}, {})
    assert path.read_bytes() == before
    with pytest.raises(TypeError):
        _files.save(str(folder / "new"), {"b": ("text", "bool", (4,))}, {})
    assert [entry.name for entry in folder.iterdir()] == ["mask.safetensors"]
    # A link stays one, and what is no file is not replaced by one.
    (folder / "link").symlink_to(path)
    _files.save(str(folder / "link"), {"other": good["mask"]}, {})
    assert (folder / "link").is_symlink() and set(load_file(path)) == {"other"}
    _files.save("/dev/null", good, {})
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/../dev/stdout"])
def test_a_redirected_output_is_written_not_replaced(folder, name):
    script = (
        "import sys; from pathlib import Path; from sparsefw import _files\n"
        "print('before', flush=True)\n"
        "with _files.atomically(Path(sys.argv[1])) as file: file.write(b'tensors\\n')\n"
        "print('after')")
    path = folder / "out"
    path.write_text("header\n")
    inode = path.stat().st_ino
    with open(path, "ab") as output:
        subprocess.run(
            [sys.executable, "-c", script, name], stdout=output, check=True,
            env={"PYTHONPATH": str(Path(_cli.__file__).parents[1])})
    assert path.read_text() == "header\nbefore\ntensors\nafter\n"
    assert path.stat().st_ino == inode
    assert [entry.name for entry in folder.iterdir()] == ["out"]


def test_a_file_that_is_there_is_replaced_when_asked_for(shared_server, files, capsys):
    _, folder = files
    words = ["prune", "--weights", f"{folder}/w.safetensors", "--gram", f"{folder}/x.safetensors:gram", "--sparsity",
             "0.6", "--method", "wanda", "--out", f"{folder}/m.safetensors", "-q", "--server", shared_server.address]
    (folder / "m.safetensors").write_bytes(b"")  # of mktemp: nothing is lost
    assert _cli.main(words) == 0
    mask = (folder / "m.safetensors").read_bytes()
    assert _cli.main(words) == 2
    assert f"{folder}/m.safetensors: exists and is not overwritten; --overwrite replaces it" in capsys.readouterr().err
    assert (folder / "m.safetensors").read_bytes() == mask
    assert _cli.main([*words, "--overwrite"]) == 0
    assert _cli.main([*words[:-6], f"{folder}/n.safetensors", *words[-5:], "--out-weights", f"{folder}/m.safetensors"]) == 2
    assert not (folder / "n.safetensors").exists()


def test_no_file_takes_the_place_of_another_one(files, capsys):
    """By whatever names; before a server is asked."""
    _, folder = files
    np.save(folder / "g.npy", np.eye(32))
    (folder / "link").symlink_to(folder / "w.safetensors")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    mask, pruned = f"{folder}/m.safetensors", f"{folder}/p.safetensors"
    gram, activations = ["--gram", f"{folder}/g.npy"], ["--activations", f"{folder}/x.safetensors:activations"]
    link, again = f"{folder}/link", f"{folder}/../{folder.name}/m.safetensors"
    for flags, error in (
        ([*gram, "--out", link], f"--out: {link} is an input and would be lost"),
        ([*gram, "--out", f"{folder}/g.npy"], f"--out: {folder}/g.npy is an input"),
        ([*activations, "--out", mask, "--out-weights", f"{folder}/x.safetensors"], "--out-weights: "),
        ([*gram, "--out", mask, "--out-weights", again], f'--out and --out-weights must be two files; got "{again}"'),
        ([*gram, "--out", mask, "--plot", mask], "--out and --plot must be two files"),
    ):
        words = ["prune", "--server", "127.0.0.1:9", "--weights", f"{folder}/w.safetensors:layer.weight", *flags]
        assert _cli.main([*words, "--overwrite", "-q"]) == 2
        assert error in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    _files.check_outputs({"--out": "/dev/null", "--out-weights": "/dev/null"}, [])
    _files.check_outputs({"--out": mask, "--out-weights": pruned}, [f"{folder}/w.safetensors:layer.weight"])


@pytest.mark.parametrize(
    ("command", "flag"), [("prune", "--out"), ("prune", "--out-weights"), ("prune", "--plot"), ("plot", "--out")])
def test_a_place_that_cannot_be_written_is_named_before_the_work(files, capsys, command, flag):
    """Before a server is asked: a job's result would be lost."""
    _, folder = files
    flags = {"--out": f"{folder}/m"}
    words = ["plot", "jobs/a"]
    if command == "prune":
        words = ["prune", "--weights", f"{folder}/w.safetensors", "--gram", f"{folder}/x.safetensors:gram",
                 "--sparsity", "0.5"]
    (folder / "link").symlink_to(folder / "none/m")
    for place, error in (
        (f"{folder}/none/m", f"{flag}: {folder}/none/m: there is no folder {os.path.realpath(folder)}/none"),
        (f"{folder}/link", f"{flag}: {folder}/link: there is no folder {os.path.realpath(folder)}/none"),
        (f"{folder}/w.safetensors/m", f"there is no folder {os.path.realpath(folder)}/w.safetensors"),
        (str(folder), f'{flag} must be a file; got the folder "{folder}"'),
        ("", f'{flag} must be a file; got the folder "."'),
    ):
        given = {**flags, flag: place}
        assert _cli.main([*words, "--server", "127.0.0.1:9", *(word for pair in given.items() for word in pair)]) == 2
        assert error in capsys.readouterr().err


def test_places_without_permission_are_refused_and_streams_are_not(folder, monkeypatch):
    (folder / "there").write_text("")
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # root may write everywhere
    parent = os.path.realpath(folder)
    for path in (folder / "new", folder / "there"):
        with pytest.raises(sparsefw.InvalidArgument, match=f"--out: {path}: {parent} is not writable"):
            _files.check_outputs({"--out": str(path)}, [])
    for path in ("/dev/stdout", "/dev/fd/1", "/dev/null"):
        _files.check_outputs({"--out": path}, [])


def test_shared_memory_holds_files():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        path = Path(place, "mask.safetensors")
        path.write_bytes(b"before")
        with pytest.raises(ZeroDivisionError), _files.atomically(path):
            raise ZeroDivisionError
        assert path.read_bytes() == b"before"


def test_serve_is_the_server():
    done = run("serve", "--help")
    assert done.returncode == 0
    assert "--state-dir" in done.stdout
    assert run("serve", "--no-such-flag").returncode == 2


def test_info(shared_server, capsys):
    assert _cli.main(["info", "--server", shared_server.address]) == 0
    assert "version" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["/dev/full", None], ids=["full", "closed"])
def test_lost_output_is_an_error(shared_server, files, target):
    _, folder = files
    prune = ["prune", "--weights", folder / "w.safetensors", "--gram", f"{folder}/x.safetensors:gram",
             "--sparsity", 0.6, "--method", "wanda", "--out", folder / "m.safetensors", "--overwrite", "-q"]
    server = ["--server", shared_server.address]
    for words in (["--help"], ["info", *server], [*prune, *server], [*prune, "--json", *server]):
        command = [sys.executable, "-m", "sparsefw", *map(str, words)]
        if target is None:
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        with open(target or "/dev/null", "w") as out:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, text=True, check=False,
                env={**clean_environment(), "PYTHONPATH": str(Path(_cli.__file__).parents[1])})
        assert done.returncode == 2, (words, done.stderr)
        # Without a standard output argparse prints its help to standard error.
        last = done.stderr.splitlines()[-1]
        assert re.fullmatch(r"sparsefw: (standard output: cannot be written: .*|\[Errno 28\] .*)", last), done
    assert (folder / "m.safetensors").exists()


@pytest.mark.parametrize("raised, code", [
    ("Error('no server', reason='UNREACHABLE')", 3),
    ("KeyboardInterrupt", 130),
    ("OSError('no such file')", 2),
])
@pytest.mark.parametrize("target", ["/dev/full", None], ids=["full", "closed"])
def test_lost_output_leaves_the_code_of_an_earlier_error(target, raised, code):
    """What was printed before the error is still in a buffer, which the interpreter flushes at its end."""
    script = (
        "import sys; from sparsefw import _cli; from sparsefw.errors import Error\n"
        "def fail(arguments):\n"
        "    print('layer 1')\n"
        f"    raise {raised}\n"
        "_cli._info = fail\n"
        "sys.exit(_cli.main(['info']))")
    command = [sys.executable, "-c", script]
    if target is None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    with open(target or "/dev/null", "w") as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, check=False,
            env={**clean_environment(), "PYTHONPATH": str(Path(_cli.__file__).parents[1]), "PYTHONUNBUFFERED": ""})
    assert done.returncode == code, done.stderr
    assert "standard output" not in done.stderr, "one message: that of the error"


def test_names_of_files_cannot_steer_a_terminal(folder):
    strange = folder / "none\n\x1b[31m\u202e"
    for words in (["prune", "--weights", strange, "--gram", strange, "--out", "m"], ["info", "\x1b[31m"]):
        done = run(*words)
        assert done.returncode == 2 and r"\x1b[31m" in done.stderr
        assert "\x1b" not in done.stderr and "\u202e" not in done.stderr


def test_commands_in_the_pages_exist():
    """Each flag of `sparsefw COMMAND` in a page is in the command's help. Those of wanda have underscores, and tests
    of their own (hf/test_names.py)."""
    root = Path(__file__).resolve().parents[3]
    found = set()
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        text = page.read_text().replace("\\\n", " ")
        for command, words in re.findall(r"(?:^|[\s`(])sparsefw ([a-z][a-z-]+)(?=[\s`])([^|;#`\n]*)", text):
            found |= {(command, flag) for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*(?!\w)", words)}
    assert len(found) > 15
    helps = {command: run(command, "--help").stdout for command, _ in found}
    assert [pair for pair in sorted(found) if not re.search(rf"{pair[1]}(?![\w-])", helps[pair[0]])] == []


def test_a_running_job_is_drawn(shared_server, client, capsys):
    layer = Layer()
    job = client.submit(layer.weight, layer.gram, sparsity=0.6, method="sparsefw", alpha=0.0, iterations=10**12,
                        report_every=50)
    ends = threading.Timer(1.5, job.cancel)
    ends.start()
    assert _cli.main(["plot", job.name, "--server", shared_server.address]) == 0
    ends.join()
    _, *lines = capsys.readouterr().out.splitlines()  # without the seed of the layer
    assert "iteration; per cent of the warm start's loss: . relaxed loss, o rounded loss" in lines[-1]
    drawn = "".join(lines[:-3])
    assert drawn.count(".") > 5 and drawn.count("o") > 5
    assert lines[0].strip()[0].isdigit() and "% |" in lines[0]
    # Its reports are gone then.
    assert _cli.main(["plot", job.name, "--server", shared_server.address]) == 2
    assert "plot a job while it runs, or give prune --plot FILE.png" in capsys.readouterr().err
    job.delete()
    assert _cli.main(["plot", "jobs/none", "--server", shared_server.address]) == 3


def test_a_picture_of_a_job(shared_server, files, capsys):
    _, folder = files
    words = ["prune", "--server", shared_server.address, "--weights", f"{folder}/w.safetensors", "--gram",
             f"{folder}/x.safetensors:gram", "--sparsity", "0.6", "--preset", "paper", "--iterations", "300",
             "--out", f"{folder}/m.safetensors", "--plot", f"{folder}/p.png"]
    code = _cli.main(words)
    if importlib.util.find_spec("matplotlib") is None:
        assert code == 2 and not (folder / "m.safetensors").exists(), "said before the work"
        assert "matplotlib is not installed: pip install 'sparsefw[plot]'" in capsys.readouterr().err
        return
    assert code == 0
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out
    (folder / "m.safetensors").unlink()
    assert _cli.main(words) == 2
    assert "p.png: exists and is not overwritten" in capsys.readouterr().err
    # A method without iterations has nothing to draw: the result is there all the same.
    words[words.index("paper")] = "fast"
    words[words.index("--iterations"):words.index("--out")] = []
    words = [word.replace("p.png", "none.png") for word in words]
    with pytest.warns(UserWarning, match="no picture: jobs/"):
        assert _cli.main([*words, "--overwrite"]) == 0
    assert "loss" in capsys.readouterr().out
    assert not (folder / "none.png").exists()


def test_a_job_that_was_seen_once_has_a_picture(tmp_path):
    trace = Trace()
    report = SimpleNamespace(iteration=5, warm_start_loss=2.0, relaxed_loss=1.0, rounded_loss=1.5)
    trace(SimpleNamespace(progress=report))
    assert trace.points == [(5, 0.5, 0.75)]
    assert "75.00%" in trace.text(60)
    if importlib.util.find_spec("matplotlib") is not None:
        trace.draw(str(tmp_path / "p.png"), "jobs/a")
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

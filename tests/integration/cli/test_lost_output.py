"""Output that does not get where it was to go: full disks, limits of file sizes, closed descriptors, links."""
import os
import subprocess

import pytest

from support import safetensors
from support.hostile import Hostile
from support.layers import ENDLESS
from support.processes import HANG, Cli, clean_environment, finish, wait_until


def run_to(cli, target, *arguments):
    """(exit code, standard error) with standard output on `target`; None: closed."""
    command = cli.arguments(*arguments)
    if target is None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    with open(target or "/dev/null", "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=clean_environment(),
                              timeout=HANG)
    return done.returncode, done.stderr


@pytest.fixture
def honest():
    server = Hostile()
    yield server
    server.close()


# `health` asks another service; it prints as the others do.
COMMANDS = [["status", "jobs/x"], ["watch", "jobs/x"], ["list"], ["cancel", "jobs/x"], ["delete", "jobs/x"],
            ["info"]]


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("target", ["/dev/full", None], ids=["full", "closed"])
def test_lost_output_is_an_error(honest, layer, target, flags):
    cli = Cli(honest.address)
    fetch = ["fetch", "jobs/x", "--out", str(layer.mask_file)]
    for command in [*COMMANDS, fetch, layer.submit(), layer.submit("--detach", out=False)]:
        code, err = run_to(cli, target, *command, *flags)
        assert code == 2, (command, code, err)
        assert "sparsefw-cli: standard output: cannot be written" in err, (command, err)


def test_lost_output_of_commands_without_a_server(cli, layer):
    for command in (["--version"], ["submit", "--help"], ["health"],
                    ["gram", "--activations", layer.activations_file, "--out", layer.folder / "g"]):
        done = subprocess.run([*cli.command, *map(str, command), *(["--server", cli.address] if
                               command[0] in ("health", "gram") else [])],
                              stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, text=True,
                              env=clean_environment(), timeout=HANG)
        assert done.returncode == 2 and "standard output: cannot be written" in done.stderr, (command, done.stderr)
    assert (layer.folder / "g").exists(), "the file is there all the same"


def test_an_error_of_the_server_comes_first(honest):
    honest.refusal = "not today"
    code, err = run_to(Cli(honest.address), "/dev/full", "status", "jobs/x")
    assert code == 3 and "not today" in err and "standard output" not in err, "nothing was printed"


def test_a_limit_of_file_sizes_is_an_error_of_the_file(cli, layer):
    before = sorted(os.listdir(layer.folder))
    limited = Cli(cli.address, prefix=("prlimit", "--fsize=500"))
    done = limited.run(*layer.submit("--method", "wanda")).refused(2, str(layer.mask_file), "File too large")
    assert sorted(os.listdir(layer.folder)) == before, "no temporary file is left"
    advice = done.err.rpartition("still on the server: sparsefw-cli ")[2].replace("FILE", str(layer.mask_file))
    cli.run(*advice.split()).expect(0)
    assert layer.mask().shape == layer.weight.shape, "the command that it names fetches the result"


def test_a_gram_matrix_that_cannot_be_written_stays_on_the_server(cli, layer):
    limited = Cli(cli.address, prefix=("prlimit", "--fsize=500"))
    done = limited.run("gram", "--activations", layer.activations_file, "--out", layer.folder / "g")
    done.refused(2, str(layer.folder / "g"), "File too large", "the Gram matrix is still on the server: tensors/")
    name = done.err.rpartition("still on the server: ")[2].strip()
    cli.run(*layer.submit("--method", "wanda", "--gram", name)).expect(0)


def test_activations_in_a_file_whose_name_is_no_text(cli, layer):
    strange = os.fsencode(layer.folder) + b"/x\xff.npy"
    with open(layer.activations_file, "rb") as there, open(strange, "wb") as copy:
        copy.write(there.read())
    cli.run("gram", "--activations", os.fsdecode(strange), "--out", layer.folder / "g").expect(0)
    assert safetensors.read(layer.folder / "g")[1]["source"].endswith("/x\\xff.npy")


def test_a_file_that_another_program_made_meanwhile_is_not_replaced(cli, big_layer):
    """Checked at the start, and again when the result is there."""
    out = big_layer.folder / "mine"
    submitted = cli.start(*big_layer.submit(*ENDLESS, "--out", out, out=False))

    def running():
        return [job["job"] for job in cli.run("list", "--json").expect(0).json()["jobs"] if job["state"] == "RUNNING"]

    (job,) = wait_until(running, "it runs")
    out.write_text("of another program")
    cli.run("cancel", job).expect(0)
    finish(submitted).refused(2, "exists and is not overwritten", f"still on the server: sparsefw-cli fetch {job}")
    assert out.read_text() == "of another program"


@pytest.mark.parametrize("command", ["gram", "fetch", "submit"])
def test_an_empty_output_name_is_refused(cli, layer, command):
    words = {"gram": ["gram", "--activations", layer.activations_file, "--out", ""],
             "fetch": ["fetch", "jobs/x", "--out", ""], "submit": layer.submit("--out", "")}[command]
    cli.run(*words).refused(2, "--out", "")


def test_an_output_file_is_replaced_and_a_link_followed(cli, layer):
    target, link = layer.folder / "target", layer.folder / "link"
    for there in ("something else", None):
        if there:
            target.write_text(there)
        else:
            target.unlink()  # a link to nothing
        if not link.is_symlink():
            link.symlink_to(target.name)
        cli.run(*layer.submit("--method", "wanda", "--out", link)).expect(0)
        assert link.is_symlink() and not target.is_symlink()
        assert safetensors.read(target)[0]["mask"].shape == layer.weight.shape
    loop = layer.folder / "loop"
    loop.symlink_to(loop)
    cli.run(*layer.submit("--out", loop)).refused(2, str(loop), "symbolic links")

"""Progress of sparsefw-cli: a live line on a terminal, lines elsewhere, and the final block."""
import re
import signal

import pytest

from support.layers import ENDLESS
from support.processes import Cli, finish
from support.terminal import InterruptAt, Screen, run_on_terminal

LONG = ("--method", "sparsefw", "--iterations", "4000", "--report-every", "20")
# How long that is depends on the machine.
LEFT = r"(?:\d+ s|\d+ min \d\d s|\d+ h \d\d min) left"
BAR = re.compile(r"\[(=*>?) *\] +(\d+) %")


def test_the_bar_shows_share_reduction_gap_and_time_left(cli, big_layer):
    done, text = run_on_terminal(cli.arguments(*big_layer.submit(*LONG, "--json")))
    assert done.expect(0).json()["state"] == "SUCCEEDED"
    screen = Screen(text)
    live = [line for line in screen.painted if BAR.search(line) and "/4000" in line]
    assert live and all(len(line) <= 97 for line in live)
    for line in live[:-1]:
        assert re.fullmatch(r"\[=*>? *\] +\d+ %  \d+/4000  loss -?\d+\.\d % below warm start  "
                            rf"converged to \S+ %  {LEFT}", line), line
    shares = [int(BAR.search(line)[2]) for line in live]
    assert shares == sorted(shares)
    # Nothing of the live line stays, and nothing scrolls.
    assert not any(BAR.search(line) for line in screen.lines), screen.lines
    assert screen.lines[-1] == "" and len(screen.lines) < 8, screen.lines


@pytest.mark.parametrize("columns", [60, 40, 20, 8])
def test_a_narrow_terminal_never_wraps(cli, big_layer, columns):
    done, text = run_on_terminal(cli.arguments(*big_layer.submit(*LONG)), columns)
    done.expect(0)
    live = [line for line in Screen(text).painted if "%" in line]
    assert live and all(len(line) < columns for line in live), live


@pytest.mark.parametrize("env, color", [({}, True), ({"NO_COLOR": "1"}, False),
                                        ({"NO_COLOR": ""}, True)])
def test_no_color(cli, big_layer, env, color):
    _, text = run_on_terminal(cli.arguments(*big_layer.submit(*LONG)), env=env)
    assert BAR.search(re.sub(r"\033\[\d*m", "", text))
    assert ("\033[32m" in text) == color


def test_a_dumb_terminal_gets_lines(cli, big_layer):
    _, text = run_on_terminal(cli.arguments(*big_layer.submit(*LONG)), env={"TERM": "dumb"})
    assert "\033" not in text and "\niteration 4000/4000" in text.replace("\r\n", "\n")


def test_a_pipe_gets_lines(cli, big_layer):
    done = cli.run(*big_layer.submit(*LONG, "--swaps")).expect(0)
    assert "\r" not in done.err and "\033" not in done.err and not BAR.search(done.err)
    reports = re.findall(r"(?m)^iteration \d+/4000  relaxed \S+  converged to \S+ %  "
                         r"best \S+ \(\d+\.\d % below the warm start\)(?:  \d+ swaps)?  " + LEFT + "$",
                         done.err)
    assert reports, done.err


def test_the_reduction_is_against_the_warm_start(cli, big_layer):
    done = cli.run(*big_layer.submit(*LONG, "--json")).expect(0)
    warm_start = done.json()["losses"]["warm_start"]
    shown = re.findall(r"best (\S+) \((\S+) % below the warm start\)", done.err)
    assert shown, done.err
    for best, reduction in shown:
        assert float(reduction) == pytest.approx(100 * (1 - float(best) / warm_start), abs=0.06)


@pytest.mark.parametrize("quiet", ["-q", "--quiet"])
def test_quiet_shows_no_progress(cli, layer, quiet):
    done = cli.run(*layer.submit("--method", "wanda", quiet)).expect(0)
    assert done.err == "" and "jobs/" in done.out
    done, text = run_on_terminal(cli.arguments(*layer.submit("--method", "wanda", quiet)))
    assert done.expect(0) and text == ""


def test_interrupting_submit_restores_the_line_and_keeps_the_mask(cli, big_layer):
    done, text = run_on_terminal(cli.arguments(*big_layer.submit(*ENDLESS)),
                                 on_text=InterruptAt(r"below warm start"))
    assert "CANCELLED" in done.expect(0).out and big_layer.mask_file.exists()
    lines = Screen(text).lines
    assert not any(BAR.search(line) for line in lines), lines
    assert any(re.fullmatch(r"sparsefw-cli: cancelling jobs/\S+; interrupt again to quit at once",
                            line) for line in lines), lines


def test_interrupting_watch_restores_the_line_and_leaves_the_job(cli, big_layer):
    job = cli.run(*big_layer.submit("--detach", *ENDLESS, out=False)).expect(0).out.strip()
    done, text = run_on_terminal(cli.arguments("watch", job),
                                 on_text=InterruptAt(r"below warm start"))
    assert done.code == -signal.SIGINT and done.out == ""
    lines = Screen(text).lines
    assert lines[-2:] == [f"sparsefw-cli: no longer watching {job}; it goes on", ""], lines
    assert not any(BAR.search(line) for line in lines), lines
    assert cli.run("status", job, "--json").expect(0).json()["state"] == "RUNNING"
    assert "below the warm start" in cli.run("status", job).out
    cli.run("cancel", job).expect(0)


@pytest.mark.parametrize("flags", [("--method", "alps", "--joint"), ENDLESS[:-1] + (str(10**12),)],
                         ids=["alps and joint", "an iteration that never reports"])
def test_a_terminal_shows_time_where_nothing_is_reported(cli, big_layer, flags):
    done, text = run_on_terminal(cli.arguments(*big_layer.submit(*flags)),
                                 on_text=InterruptAt(r"running \w+(?:, then the joint search)?  \S+ s so far"))
    assert done.code in (0, 5), done
    live = [line for line in Screen(text).painted if "so far" in line]
    assert live and not any("so far" in line for line in Screen(text).lines)


def test_a_sweep_names_its_points(cli, big_layer):
    done = cli.run(*big_layer.submit("--iterations", "40", "--report-every", "10", "--sweep",
                                     "alpha=0,0.5", "--sweep", "swaps=off,on")).expect(0)
    assert re.search(r"(?m)^point [1-4]/4  iteration \d+/40 ", done.err), done.err
    table = done.out[done.out.index("\n point") + 1:].splitlines()
    assert len(table) == 6 and all(len(line) <= 80 for line in table), table
    assert table[5].startswith("* the result")


def test_the_final_block_begins_with_the_loss_in_per_cent(cli, layer):
    done = cli.run(*layer.submit("--method", "sparsefw", "--iterations", "50", "--alpha", "0.5"))
    lines = done.expect(0).out.splitlines()
    result = cli.run(*layer.submit("--method", "sparsefw", "--iterations", "50", "--alpha", "0.5",
                                   "--json")).expect(0).json()
    losses = result["losses"]
    shown = {line.split()[0]: float(line.split()[1]) for line in lines[:4]}
    assert list(shown) == ["loss", "reduction", "certificate", "sparsity"]
    assert shown["loss"] == pytest.approx(100 * losses["final"] / losses["full"], abs=6e-4)
    assert shown["reduction"] == pytest.approx(100 * result["relative_reduction"], abs=6e-4)
    assert shown["certificate"] == pytest.approx(100 * losses["lower_bound"] / losses["final"], abs=6e-4)
    assert shown["sparsity"] == pytest.approx(100 * (1 - result["kept"] / (24 * 32)), abs=6e-4)
    for name in ("loss", "certificate", "sparsity"):
        assert shown[name] == pytest.approx(100 * result[name], abs=6e-4), name
    assert f"mask         {layer.mask_file}" in lines
    assert all(len(line) <= 100 for line in lines if not line.startswith("mask"))


def test_the_final_block_names_the_file_of_the_updated_weights(cli, layer, folder):
    weights = folder / "updated.safetensors"
    done = cli.run(*layer.submit("--method", "sparsegpt", "--out-weights", weights)).expect(0)
    assert "with the updated weights W'" in done.out.splitlines()[0]
    assert f"weights      {weights}" in done.out


def test_a_process_without_a_terminal_dies_of_an_interrupt_while_it_watches(cli, big_layer):
    job = cli.run(*big_layer.submit("--detach", *ENDLESS, out=False)).expect(0).out.strip()
    process = cli.start("watch", job)
    for line in process.stderr:
        if line.startswith("iteration"):
            break
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == -signal.SIGTERM
    cli.run("cancel", job).expect(0)


def test_an_interrupt_that_was_ignored_at_the_start_stays_so(shared_server, big_layer):
    """As a script's shell has it for `sparsefw-cli ... &`."""
    cli = Cli(shared_server.address, prefix=("sh", "-c", "trap '' INT; exec \"$@\"", "sh"))
    job = cli.run(*big_layer.submit("--detach", *ENDLESS, out=False)).expect(0).out.strip()
    process = cli.start("watch", job)
    for line in process.stderr:
        if line.startswith("iteration"):
            process.send_signal(signal.SIGINT)
            break
    assert next(process.stderr).startswith("iteration")
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == -signal.SIGTERM
    cli.run("cancel", job).expect(0)

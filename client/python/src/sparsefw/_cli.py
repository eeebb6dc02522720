"""The program `sparsefw`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import json
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sparsefw import _cli_models, _files
from sparsefw._commands import check_picture, pack, plot, wanda
from sparsefw._commands.outputs import connection_files
from sparsefw._commands.prune_files import inputs_named, result_kept, warn_of_lost_weights
from sparsefw._inputs import files
from sparsefw._progress import job_observer
from sparsefw._text import printable
from sparsefw.client import Client, connect
from sparsefw.embedded import find_program
from sparsefw.errors import Error
from sparsefw.results import Event, Result

_NO_MEMORY = r"out of memory|not enough memory|(can't|cannot) allocate memory"


def _connect(arguments: argparse.Namespace) -> Client:
    token = _cli_models.read_text(arguments.token_file).strip() if arguments.token_file else None
    return connect(
        arguments.server,
        token=token,
        tls_ca=arguments.tls_ca,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
    )


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of every command that talks to a server."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server", metavar="HOST:PORT", help='or SPARSEFW_SERVER; "auto" starts one for this command'
    )
    group.add_argument("--token-file", metavar="FILE", help="or the token in SPARSEFW_TOKEN")
    group.add_argument("--tls-ca", metavar="FILE", help="or SPARSEFW_TLS_CA; connects by TLS")
    group.add_argument("--tls-cert", metavar="FILE")
    group.add_argument("--tls-key", metavar="FILE")


def _add_prune(commands: Any) -> None:
    parser = commands.add_parser(
        "prune", help="prune one layer from files: safetensors, .npy, .npz, or of torch.save"
    )
    parser.add_argument("--weights", required=True, metavar="FILE[:TENSOR]", help="[d_out, d_in]")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gram", metavar="FILE[:TENSOR]", help="[d_in, d_in]: x.T @ x of activations x")
    source.add_argument(
        "--activations",
        metavar="FILE[:TENSOR]",
        nargs="+",
        action="extend",
        help="[tokens, d_in] or [..., tokens, d_in], of one or several files",
    )
    parser.add_argument(
        "--pattern", default="per-row", help="per-row, unstructured or K:N, which keeps K of N"
    )
    parser.add_argument("--sparsity", type=float, help="share to remove")
    parser.add_argument("--method", help="sparsefw, sparsegpt, alps, ria, wanda, magnitude")
    parser.add_argument(
        "--preset",
        choices=["paper", "fast", "balanced", "best"],
        help="balanced, unless a method or an option of one is given",
    )
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--step-rule", choices=["open-loop", "line-search", "auto"])
    parser.add_argument("--swaps", action="store_true", default=None)
    parser.add_argument("--reconstruct", action="store_true", default=None)
    parser.add_argument("--device")
    parser.add_argument("--out", required=True, metavar="FILE", help="the mask, BOOL, true = keep")
    parser.add_argument("--out-weights", metavar="FILE", help="the pruned weight")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the files of --out, --out-weights and --plot"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="draw the losses; needs matplotlib")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_server_flags(parser)
    parser.set_defaults(run=_prune)


def _prune(arguments: argparse.Namespace) -> int:
    outputs = {"--out": arguments.out, "--out-weights": arguments.out_weights, "--plot": arguments.plot}
    outputs = {flag: path for flag, path in outputs.items() if path is not None}
    inputs = [arguments.weights, arguments.gram, *(arguments.activations or []), *connection_files(arguments)]
    _files.check_outputs(outputs, [path for path in inputs if path])
    if arguments.plot:
        check_picture("--plot", arguments.plot)
    for path in outputs.values():
        _files.check_absent(path, arguments.overwrite)
    weight, name = files.open_tensor(arguments.weights)
    gram = files.open_tensor(arguments.gram)[0] if arguments.gram else None
    activations = files.open_batches(arguments.activations) if arguments.activations else None
    keys = ("preset", "alpha", "iterations", "step_rule", "swaps", "reconstruct", "device", "sparsity")
    options: dict[str, Any] = {key: getattr(arguments, key) for key in keys}
    if arguments.out_weights:
        options["return_weight"] = True
    trace = plot.Trace()
    observer, close = job_observer(not arguments.quiet, "prune")

    def seen(event: Event) -> None:
        trace(event)
        if observer is not None:
            observer(event)

    with _connect(arguments) as client, contextlib.ExitStack() as stack:
        stack.callback(close)
        stack.enter_context(inputs_named(arguments))
        result = client.prune(
            weight,
            gram,
            activations=activations,
            progress=seen,
            method=arguments.method,
            pattern=arguments.pattern,
            **options,
        )
    facts = describe(result)
    metadata = {key: json.dumps(value) for key, value in facts.items()}
    with result_kept(arguments, client, result.job, arguments.out):
        _files.save(arguments.out, {"mask": (result.mask.tobytes(), "bool", result.shape)}, metadata)
    if arguments.out_weights:
        tensors = {name or "weight": (*result.weight_bytes, result.shape)}
        with result_kept(arguments, client, result.job, arguments.out_weights):
            _files.save(arguments.out_weights, tensors, metadata)
    else:
        warn_of_lost_weights(result)
    if arguments.json:
        print(json.dumps(facts))
    else:
        print(result)
    if trace.points and arguments.plot:
        plot.show(trace, result.job, arguments.plot)
    elif arguments.plot:
        # The work is done, so this is no error.
        warnings.warn(f"no picture: {result.job} made no report of an iteration", stacklevel=1)
    return 0


def describe(result: Result) -> dict[str, Any]:
    """The numbers of a result, for JSON."""
    return {
        "job": result.job,
        "state": result.state,
        "preset": result.preset or None,
        "preset_overrides": list(result.preset_overrides),
        "shape": list(result.shape),
        "loss": result.loss,
        "certificate": result.certificate if result.losses.lower_bound > 0 else None,
        "sparsity": result.sparsity,
        "kept": result.kept,
        "losses": dataclasses.asdict(result.losses),
        "relative_reduction": result.relative_reduction,
        "iterations": result.iterations,
        "stop_reason": result.stop_reason,
        "candidate": result.candidate,
        "swaps": result.swaps,
        "device": result.device,
        "solve_s": result.timings.solve,
    }


def _add_info(commands: Any) -> None:
    parser = commands.add_parser("info", help="what a server is and has")
    add_server_flags(parser)
    parser.set_defaults(run=_info)


def _add_plot(commands: Any) -> None:
    plot.add_plot(commands, add_server_flags, _connect)


def _info(arguments: argparse.Namespace) -> int:
    with _connect(arguments) as client:
        print(client.info())
    return 0


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse's own hides that nothing was written

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))  # it may quote the command line


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sparsefw", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser(
        "serve", add_help=False, help="run the server; all flags are sparsefw-server's (--help)"
    )
    for add in (
        _add_prune,
        _cli_models.add_prune_model,
        _cli_models.add_tune,
        _cli_models.add_eval_perplexity,
        pack.add_pack,
        pack.add_unpack,
        _add_info,
        _add_plot,
    ):
        add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """0: done; 1: no memory; 2: wrong usage or file, or lost output; 3: refused or no server;
    130: interrupted; 143: ended by SIGTERM.
    """
    warnings.formatwarning = _warning_line
    with _terminable():
        return _finish_output(_run(list(sys.argv[1:] if argv is None else argv)))


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends the work as Ctrl-C does: temporary folders and the server of "auto" go."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise _Terminated

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # else whoever started it has other plans
    )
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Our own without the place in our source, which says nothing to who runs a program."""
    if Path(filename).is_relative_to(Path(__file__).parent):
        return f"sparsefw: warning: {printable(str(message))}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _run(words: list[str]) -> int:
    """The exit code, whatever becomes of the output."""
    try:
        if words[:1] == ["serve"]:
            program = find_program()
            os.execv(program, [program, *words[1:]])
        if words[:1] == ["prune-model"] and wanda.is_wanda(words[1:]):
            words = ["prune-model", *wanda.translate(words[1:])]
            print(f"sparsefw: the same as: sparsefw {printable(shlex.join(words))}", file=sys.stderr)
        try:
            arguments = _parser().parse_args(words)
        except SystemExit as end:  # --help, or wrong usage
            return int(end.code or 0)
        return int(arguments.run(arguments))
    except Error as error:
        message = error.message
        if error.reason == "STATE_DIFFERS":  # raised where there are arguments, not flags
            message = message.replace("Give another state_dir", "Give another folder with --state")
        print(f"sparsefw: {printable(message)}", file=sys.stderr)
        return 2 if error.reason == "CLIENT_ARGUMENT" else 3
    except OSError as error:
        print(f"sparsefw: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        return 143 if isinstance(error, _Terminated) else 130
    except (MemoryError, RuntimeError) as error:
        # PyTorch says so with a RuntimeError.
        if isinstance(error, RuntimeError) and not re.search(_NO_MEMORY, str(error)):
            raise
        why = " ".join(str(error).split()) or "an array did not fit"
        print(f"sparsefw: this machine's memory ran out: {printable(why)}", file=sys.stderr)
        return 1


def _finish_output(code: int) -> int:
    """What was printed is where it was to go: a script would take less for all there is.

    An error that came before keeps its code and its message.
    """
    lost = ""
    if sys.stdout is None:  # the descriptor was closed at the start, and print prints nothing
        lost = os.strerror(errno.EBADF)
    else:
        try:
            sys.stdout.flush()
        except OSError as error:
            lost = error.strerror or str(error)
            # What is left in the buffer cannot be written at the end of the interpreter either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not lost or code:
        return code
    print(f"sparsefw: standard output: cannot be written: {lost}", file=sys.stderr)
    return 2

"""What `sparsefw prune` says of its files: those that an error is about, and those that are not written."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import warnings
from collections.abc import Iterator

from sparsefw.client import Client
from sparsefw.errors import Error, InvalidArgument
from sparsefw.results import Result


@contextlib.contextmanager
def inputs_named(arguments: argparse.Namespace) -> Iterator[None]:
    """Errors speak of "weight" and "gram", which are files here, and of keywords, which are flags."""
    try:
        yield
    except InvalidArgument as error:
        message = error.message.replace("activations=x.T", "save x.T, and give it as --activations")
        message = message.replace("activations=", "--activations").replace(": pass x.T", ": save x.T")
        file = _file_of(error, arguments)
        raise error.with_message(f"{file}: {message}" if file else message) from None


def _file_of(error: Error, arguments: argparse.Namespace) -> str:
    """FILE[:TENSOR] that the error is about; "": none."""
    # Errors of the client about arrays begin with the name of the array.
    field = error.metadata.get("field") or error.message.partition(" ")[0]
    if field == "weight":
        return str(arguments.weights)
    if field == "gram" and arguments.gram:
        return str(arguments.gram)
    if field not in ("gram", "activations") or not arguments.activations:
        return ""
    first, *others = arguments.activations
    return f"{first} and {len(others)} more" if others else str(first)


@contextlib.contextmanager
def result_kept(arguments: argparse.Namespace, client: Client, job: str, path: str) -> Iterator[None]:
    """The error of a file that cannot be written says where the result of hours still is."""
    try:
        yield
    except OSError as error:
        lost = f"{path}: cannot be written: {error.strerror or error}"
        if client.server is not None:
            kept = f"the result of {job} is lost with the server of this command"
        else:
            kept = f"{job} keeps its result on {client.address}: {_fetch(arguments, client.address, job)}"
        raise OSError(f"{lost}; {kept}") from None


def _fetch(arguments: argparse.Namespace, address: str, job: str) -> str:
    words = ["sparsefw-cli", "fetch", job, "--out", "FILE"]
    if arguments.out_weights:
        words += ["--out-weights", "FILE"]
    words += ["--server", address]
    for name in ("token_file", "tls_ca", "tls_cert", "tls_key"):
        if value := getattr(arguments, name):
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)


def warn_of_lost_weights(result: Result) -> None:
    """Warns that the loss is that of weights that no file has; it is no error, as the mask is there."""
    losses = result.losses
    if losses.reconstructed is None:
        return
    alone = ""
    if losses.full > 0:
        shrunk = "" if losses.unshrunk is None else " (G shrunk)"
        alone = f"; the mask alone loses {100 * losses.final / losses.full:.3f} %{shrunk}"
    warnings.warn(
        f"the loss is that of new weights, which are written only with --out-weights{alone}", stacklevel=1
    )

"""Files that commands write beside their main output: checked before hours of work rather than after them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from sparsefw._files import check_absent, check_outputs
from sparsefw.errors import invalid

# Files of every pruned model, also of one of the hub, whose folder is not there.
_ALWAYS = ("README.md", "config.json", "sparsefw.json")
_WEIGHTS = (".safetensors", ".safetensors.index.json")


def connection_files(arguments: argparse.Namespace) -> list[str]:
    """The files of a token and of TLS that a command reads."""
    paths = [getattr(arguments, name) for name in ("token_file", "tls_ca", "tls_cert", "tls_key")]
    return [path for path in paths if path]


def check_model_outputs(arguments: argparse.Namespace) -> None:
    """Checks --report and --plot of prune-model and tune. Folders that the run makes may hold the files."""
    named = {f"--{name}": getattr(arguments, name, None) for name in ("report", "plot")}
    outputs = {flag: path for flag, path in named.items() if path is not None}
    model = arguments.model  # of the hub: its files are in a cache
    files = os.listdir(model) if os.path.isdir(model) else []
    made = [folder for folder in (getattr(arguments, "out", None), arguments.state) if folder]
    inputs = [arguments.data, *connection_files(arguments), *(os.path.join(model, name) for name in files)]
    check_outputs(outputs, inputs, made)
    if getattr(arguments, "out", None):
        _check_apart(outputs, arguments.out, {*files, *_ALWAYS})
    for path in outputs.values():
        check_absent(path, arguments.overwrite or arguments.state is not None)


def _check_apart(outputs: Mapping[str, str], out: str, files: set[str]) -> None:
    """Raises InvalidArgument where a file would take the place of one of the pruned model."""
    for flag, path in outputs.items():
        folder, name = os.path.split(os.path.realpath(path))
        if folder == os.path.realpath(out) and (name in files or name.endswith(_WEIGHTS)):
            raise invalid(f"{flag}: {path} is a file of the pruned model and would be lost")

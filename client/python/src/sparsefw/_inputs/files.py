"""Tensors in files of several formats, recognised by their first bytes and never by the name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsefw import _files
from sparsefw.errors import Error, invalid

_NPY: Final = b"\x93NUMPY"
_ZIP: Final = b"PK\x03\x04"
# A pickle, which PyTorch before 1.6 wrote.
_PICKLE: Final = b"\x80\x02"


def open_tensor(argument: str) -> tuple[Any, str]:
    """(array or tensor, its name) of FILE[:TENSOR]: safetensors, .npy, .npz, or what torch.save wrote.

    The name is optional where there is one tensor, and "" where it has none.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no such file or tensor, or no such format; a file of torch.save
            where PyTorch is not installed, with the command that converts it.
    """
    path, wanted = _files.split_name(argument)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise invalid(f"{path}: must be a regular file; it is none")
    try:
        with open(path, "rb") as file:
            first = file.read(512)
    except OSError as error:
        raise invalid(f"{path}: cannot be read: {error.strerror}") from None
    try:
        if first.startswith(_NPY):
            if wanted:
                raise invalid(f'{path}: a .npy file has one array without a name; got ":{wanted}"')
            return np.load(path, mmap_mode="r", allow_pickle=False), ""
        if first.startswith(_ZIP) and _first_member(first).endswith(".npy"):
            with np.load(path, allow_pickle=False) as archive:
                name = _choose(path, wanted, archive.files)
                return archive[name], name
        if first.startswith((_ZIP, _PICKLE)):
            return _of_torch(path, wanted)
    except Error:
        raise
    except Exception as error:  # whatever a library says of a broken file
        raise invalid(f"{path}: cannot be read: {error}") from None
    return _files.open_tensor(argument)


def open_batches(arguments: list[str]) -> list[Any]:
    """The activations of several FILE[:TENSOR]."""
    twice = [argument for argument in arguments if arguments.count(argument) > 1]
    if twice:
        raise invalid(f"{twice[0]} is given twice")
    return [open_tensor(argument)[0] for argument in arguments]


def _first_member(zipped: bytes) -> str:
    length = int.from_bytes(zipped[26:28], "little")
    return zipped[30 : 30 + length].decode(errors="replace")


def _choose(path: str, wanted: str, names: list[str]) -> str:
    name = wanted or (names[0] if len(names) == 1 else "")
    if name not in names:
        held = ", ".join(f'"{each}"' for each in sorted(names))
        asked = f'there is no tensor "{name}"' if name else "which tensor is not said"
        raise invalid(f"{path}: {asked}; it holds {held or 'none'}")
    return name


def _of_torch(path: str, wanted: str) -> tuple[Any, str]:
    if importlib.util.find_spec("torch") is None:
        out = shlex.quote(str(Path(path).with_suffix(".safetensors")))
        raise invalid(
            f"{path}: is a file of torch.save, and PyTorch is not installed here; convert it where it is: "
            'python3 -c \'import sys, torch, safetensors.torch as s; x = torch.load(sys.argv[1], "cpu", '
            'weights_only=True); x = {"x": x} if torch.is_tensor(x) else x; s.save_file({k: '
            "v.clone(memory_format=torch.contiguous_format) for k, v in x.items()}, sys.argv[2])' "
            f"{shlex.quote(path)} {out}"
        )
    torch: Any = importlib.import_module("torch")
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    if torch.is_tensor(loaded):
        if wanted:
            raise invalid(f'{path}: is one tensor without a name; got ":{wanted}"')
        return loaded, ""
    if not isinstance(loaded, Mapping):
        raise invalid(f"{path}: must be a tensor or a dictionary of tensors; it is a {type(loaded).__name__}")
    tensors = {str(name): value for name, value in loaded.items() if torch.is_tensor(value)}
    name = _choose(path, wanted, list(tensors))
    return tensors[name], name

"""The files of a model folder: which of them from_pretrained reads, and what is said where it cannot."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from sparsefw._files import read_header
from sparsefw.errors import InvalidArgument, invalid

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
# Bytes of the longest file of JSON, as safetensors has it for headers.
_LONGEST_JSON: Final = 100 << 20


def read_json(path: Path) -> tuple[Any, str]:
    """(what a file of JSON says, its text)

    Raises:
        FileNotFoundError: there is none.
        InvalidArgument (CLIENT_ARGUMENT): it is damaged.
    """
    size = path.stat().st_size
    if not path.is_file() or size > _LONGEST_JSON:
        raise invalid(f"{path}: must be a file of at most {_LONGEST_JSON} bytes; has {size}")
    try:
        text = path.read_bytes().decode()
        return json.loads(text), text
    except (OSError, ValueError, RecursionError) as error:
        raise invalid(f"{path}: is damaged: {error}") from None


def weight_map(folder: Path) -> dict[str, Path] | None:
    """The files of tensors, by name, that the index names; None: one file has all of them.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): there are none, or the index names files elsewhere.
    """
    if (folder / SINGLE).is_file():  # as transformers: it is read, and not what the index names
        return None
    index = folder / INDEX
    if not index.is_file():
        raise invalid(f"{folder}: has neither {SINGLE} nor {INDEX}")
    try:
        names: dict[str, str] = dict(read_json(index)[0]["weight_map"])
        sound = all(isinstance(name, str) and _is_plain(name) for name in names.values())
    except (KeyError, AttributeError, TypeError, ValueError):
        sound = False
    if not sound or not names:
        raise invalid(f"{index}: must name files of the same folder by tensor")
    for name in names.values():
        if not (folder / name).is_file():
            raise invalid(f"{folder / name}: is missing; {INDEX} names it")
    return {key: folder / name for key, name in names.items()}


def model_files(folder: Path) -> list[Path]:
    """The files of safetensors that from_pretrained reads.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): as weight_map.
    """
    named = weight_map(folder)
    return [folder / SINGLE] if named is None else sorted(set(named.values()))


def _is_plain(name: str) -> bool:
    """A name in the folder itself."""
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name and "\0" not in name


@contextlib.contextmanager
def loading(folder: Path, what: str) -> Iterator[None]:
    """Raises InvalidArgument with the folder's name where transformers cannot make `what` of it."""
    try:
        yield
    except InvalidArgument:  # of our loader of packed folders
        raise
    except (OSError, ValueError, SafetensorError) as error:
        if isinstance(error, SafetensorError):
            for path in model_files(folder):
                read_header(path)  # the error does not say which file it is
        # Its messages have several lines, and say more of the hub than of the folder.
        why = " ".join(str(error).split())
        raise invalid(f"{folder}: its {what} cannot be loaded: {why}") from error

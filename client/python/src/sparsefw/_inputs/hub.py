"""Models by their name on the Hugging Face hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import huggingface_hub

from sparsefw.errors import invalid

_NAME: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# Weights in other forms would only be downloaded: safetensors are what is read.
_FILES: Final = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


def local_folder(model: Any) -> Path | None:
    """The folder that `model` is or, where there is none of this name, that of the hub's ORGANISATION/NAME in
    the cache of huggingface_hub; None: `model` is a model in memory.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no folder, and no model of the hub that can be had.
    """
    if not isinstance(model, str) and not hasattr(model, "__fspath__"):
        return None
    name = os.fspath(model)
    if Path(name).is_dir():
        return Path(name)
    if not _NAME.fullmatch(name):
        raise invalid(f"{name}: is no folder, and no ORGANISATION/NAME of a model of the Hugging Face hub")
    try:
        found = huggingface_hub.snapshot_download(name, allow_patterns=list(_FILES), ignore_patterns=["*/*"])
    except Exception as error:  # of HTTP, of files, of names; also from the packages beneath
        why = " ".join(str(error).split())
        raise invalid(
            f"{name}: is no folder, and could not be had from the Hugging Face hub; download it where there "
            f"is a network (hf download {name} --local-dir DIR) and pass the folder: {why}"
        ) from error
    return Path(found)

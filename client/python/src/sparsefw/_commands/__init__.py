"""Commands of the program `sparsefw`."""

from __future__ import annotations

import importlib
import os
from typing import Any

from sparsefw.errors import invalid


def load(module: str, extra: str) -> Any:
    """A module that needs packages of an extra.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): one of them is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise invalid(f"{error.name} is not installed: pip install 'sparsefw[{extra}]'") from None


def check_picture(flag: str, path: str) -> None:
    """Raises InvalidArgument where no picture could be drawn: before the work rather than after it."""
    load("matplotlib", "plot")
    canvas = importlib.import_module("matplotlib.backend_bases").FigureCanvasBase
    kinds = set(canvas.get_supported_filetypes()) - {"pgf"}  # which needs LaTeX
    # Matplotlib adds an ending to a name that has none, and writes a file that nobody has checked.
    if os.path.splitext(path)[1].removeprefix(".").lower() not in kinds:
        known = ", ".join(f".{kind}" for kind in sorted(kinds))
        raise invalid(f'{flag}: the name must end in one of {known}; got "{path}"')

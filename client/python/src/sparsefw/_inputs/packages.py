"""Packages that only some calls need."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from sparsefw._files import atomically


def needed(module: str, install: str) -> Any:
    """A module of such a package.

    Args:
        install: what pip installs it with.

    Raises:
        ModuleNotFoundError: it is not installed; the message says how to.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:
            raise  # one that this package needs
        raise ModuleNotFoundError(
            f"{package} is not installed: pip install {install}", name=package
        ) from None


def new_figure() -> tuple[Any, Any]:
    """(figure, its axes) of matplotlib, without a window."""
    backend = needed("matplotlib.backends.backend_agg", "'sparsefw[plot]'")
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    backend.FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture; the ending says of which kind, and without one it gets .png."""
    name = os.fspath(path)
    kind = os.path.splitext(name)[1].removeprefix(".").lower()
    if not kind:
        name, kind = f"{name.rstrip('.')}.png", "png"
    with atomically(Path(name)) as file:
        figure.savefig(file, format=kind, dpi=150)

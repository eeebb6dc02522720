"""Commands of the program `sparsefw`."""

from __future__ import annotations

import importlib
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

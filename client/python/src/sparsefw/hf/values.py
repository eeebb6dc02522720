"""Values of arguments as JSON has them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """With numbers of Python's own types, also within dictionaries."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def finite(value: Any) -> Any:
    """With None for numbers that are not finite, which JSON does not have, also within containers."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_number(value: Any) -> bool:
    """A real number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Values of arguments as JSON has them."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Mapping
from typing import Any

from sparsefw.errors import invalid


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


def shown(value: Any) -> str:
    """The value in a message, and of a long one the ends."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an int of thousands of digits
        return f"<{type(value).__name__}>"


def truth(name: str, value: Any) -> bool:
    """The value; raises InvalidArgument (CLIENT_ARGUMENT) unless it is True or False."""
    if not isinstance(given := plain(value), bool):
        raise invalid(f"{name} must be True or False; got {shown(value)}")
    return given


def whole(name: str, value: Any, least: int, unit: str = "") -> int:
    """The value as an int.

    Args:
        name: of the argument.
        unit: what it counts, for the message.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): it is no whole number, or less than `least`.
    """
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        of = f" of {unit}" if unit else ""
        raise invalid(f"{name} must be a whole number{of} of at least {least}; got {shown(number)}")
    return number

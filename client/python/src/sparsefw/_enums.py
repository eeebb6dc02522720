"""Enum values in words: the names of sparsefw.v1 without their prefix."""

from collections.abc import Sequence
from typing import Any

from sparsefw.errors import invalid


def _prefix(wrapper: Any) -> str:
    zero: str = wrapper.Name(0)
    return zero.removesuffix("UNSPECIFIED")


def short_name(wrapper: Any, number: int) -> str:
    """ "SUCCEEDED" for JOB_STATE_SUCCEEDED; the number where this package does not know it."""
    try:
        name: str = wrapper.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(_prefix(wrapper))


def number_of(wrapper: Any, name: str, what: str) -> Any:
    """The value that a user calls "line-search"."""
    prefix = _prefix(wrapper)
    values = {key.removeprefix(prefix): number for key, number in wrapper.items() if number != 0}
    wanted = str(name).upper().replace("-", "_")
    if wanted in values:
        return values[wanted]
    words = ", ".join(f'"{value.lower().replace("_", "-")}"' for value in values)
    raise invalid(f'{what} must be one of {words}; got "{name}"')


def numbers_of(wrapper: Any, names: Sequence[str], what: str) -> list[int]:
    """The values that a user calls these."""
    return [number_of(wrapper, name, what) for name in names]

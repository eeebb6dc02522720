"""Enum values in words: the names of sparsefw.v1 without their prefix."""

from collections.abc import Iterator
from typing import Any

from sparsefw.errors import invalid


def _prefix(wrapper: Any) -> str:
    zero: str = wrapper.Name(0)
    return zero.removesuffix("UNSPECIFIED")


def known_values(wrapper: Any) -> Iterator[tuple[str, int]]:
    """(short name, number) of every value but UNSPECIFIED."""
    prefix = _prefix(wrapper)
    return ((name.removeprefix(prefix), number) for name, number in wrapper.items() if number != 0)


def short_name(wrapper: Any, number: int) -> str:
    """ "SUCCEEDED" for JOB_STATE_SUCCEEDED; the number where this package does not know it."""
    names = dict(zip(wrapper.values(), wrapper.keys(), strict=True))
    return names[number].removeprefix(_prefix(wrapper)) if number in names else str(number)


def number_of(wrapper: Any, name: str, what: str) -> Any:
    """The value that a user calls "line-search"."""
    values = dict(known_values(wrapper))
    wanted = str(name).upper().replace("-", "_")
    if wanted in values:
        return values[wanted]
    words = ", ".join(f'"{value.lower().replace("_", "-")}"' for value in values)
    raise invalid(f'{what} must be one of {words}; got "{name}"')

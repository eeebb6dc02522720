"""What a task on a Ray cluster tells while it runs."""

from __future__ import annotations

from typing import Any


class Seen:
    """Keeps the latest news of a task; the driver asks for it."""

    def __init__(self) -> None:
        self._last: Any = None

    def tell(self, what: Any) -> None:
        """The news."""
        self._last = what

    def last(self) -> Any:
        """The latest news."""
        return self._last

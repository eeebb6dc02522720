"""How long to wait before the next attempt, and when to give up."""

from __future__ import annotations

import random

from sparsefw.options import Retry


class Backoff:
    """Exponential back-off with jitter and a bound on the time without progress.

    Pure arithmetic: the caller tells the time in seconds and sleeps.
    """

    def __init__(self, retry: Retry, now: float, source: random.Random | None = None) -> None:
        self._retry = retry
        self._random = source or random.Random()
        self._give_up = self._base = 0.0
        self.reset(now)

    def reset(self, now: float) -> None:
        """There was progress: waits start over, and so does the time to give up."""
        self._give_up = now + self._retry.give_up_after
        self._base = min(self._retry.initial_backoff, self._retry.max_backoff)

    def postpone(self, worked: float) -> None:
        """An attempt took so long: its time does not count as waiting. It may take longer than all trying
        again may."""
        self._give_up += worked

    def next(self, now: float, server_delay: float | None = None) -> float | None:
        """Seconds to wait, at most until the time to give up; None: that time has come."""
        delay = self._base * self._random.uniform(0.5, 1.0)
        self._base = min(self._base * self._retry.multiplier, self._retry.max_backoff)
        # Jitter goes on top of what the server asked for: clients that were all refused at once must
        # not all come back at once.
        delay += server_delay or 0.0
        if now >= self._give_up:
            return None
        return min(delay, self._give_up - now)

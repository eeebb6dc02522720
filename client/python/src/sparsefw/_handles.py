"""What handles of both clients have in common: the last message about a tensor or a job, and its fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sparsefw import arrays
from sparsefw._core import Core, check_ended_well, kind_name
from sparsefw._enums import short_name
from sparsefw._rpc.session import TERMINAL
from sparsefw._text import printable
from sparsefw.errors import Error, NotFound
from sparsefw.v1 import job_pb2, tensor_pb2

Outcome = TypeVar("Outcome")


class TensorHandle:
    """See sparsefw.Tensor."""

    def __init__(self, core: Core, message: tensor_pb2.Tensor) -> None:
        self._core = core
        self.message = message
        self.name = message.name
        self.kind = kind_name(message)
        self.dtype = arrays.dtype_name(message.spec.dtype)
        self.shape = tuple(message.spec.dims)
        self.tokens = message.spec.token_count
        self.byte_size = message.byte_size

    def __repr__(self) -> str:
        return printable(f"<{self.name} {self.kind} {self.dtype} {list(self.shape)}>")


class JobHandle:
    """See sparsefw.Job."""

    def __init__(self, core: Core, message: job_pb2.Job, temporary: Sequence[str] = ()) -> None:
        self._core = core
        self._temporary = list(temporary)
        self.message = message
        self.name = message.name

    @property
    def state(self) -> str:
        """As last seen: "QUEUED", "RUNNING", "SUCCEEDED", "FAILED" or "CANCELLED"."""
        return short_name(job_pb2.JobState, self.message.state)

    @property
    def ended(self) -> bool:
        """As last seen: it will not change any more."""
        return self.message.state in TERMINAL

    @property
    def revision(self) -> int:
        """As last seen; `events(after_revision=...)` goes on from there."""
        return self.message.revision

    @property
    def labels(self) -> dict[str, str]:
        """Kept with the job."""
        return dict(self.message.spec.labels)

    def _take_temporary(self) -> list[str]:
        """The arrays that were uploaded for this job alone, and are of no use after its end."""
        names, self._temporary = self._temporary, []
        return names

    async def _fetch(self, fetch: Callable[[job_pb2.Job], Awaitable[Outcome]]) -> Outcome:
        """What the job, which has ended, has left. Only then do its arrays go: until the outcome is here, the
        same request may come again and must find them.
        """
        ended_well = False
        try:
            check_ended_well(self.message)
            ended_well = True
            outcome = await fetch(self.message)
        except Error as error:
            # It has failed, or its result has expired or was deleted: there will be none.
            if not ended_well or isinstance(error, NotFound):
                await self._core.discard(self._take_temporary())
            raise
        await self._core.discard(self._take_temporary())
        return outcome

    def __repr__(self) -> str:
        return printable(f"<{self.name} {self.state}>")

"""Tensors as objects of Ray, whose bytes are read where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray

from sparsefw.arrays import from_storage


class Stored(NamedTuple):
    """A tensor: its bytes as a NumPy array, which Ray neither copies nor pickles; the name of its dtype."""

    data: npt.NDArray[np.uint8]
    dtype: str
    shape: tuple[int, ...]


def array_of(value: Stored) -> npt.NDArray[Any]:
    """An array over the memory of the object, which must not be written to; of bfloat16 its bits."""
    return from_storage(value.data, value.dtype, value.shape)


def joined(strips: Sequence[Any]) -> npt.NDArray[Any]:
    """The matrix whose strips of rows are these objects; one of them is read at a time."""
    values = array_of(ray.get(strips[0]))
    if len(strips) == 1:
        return values
    whole = np.empty((values.shape[1], values.shape[1]), values.dtype)
    row = len(values)
    whole[:row] = values
    for strip in strips[1:]:
        del values  # its object may leave the store
        values = array_of(ray.get(strip))
        whole[row : row + len(values)] = values
        row += len(values)
    return whole

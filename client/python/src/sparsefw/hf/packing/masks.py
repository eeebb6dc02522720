"""The masks of a pruned model alone, one bit a weight, for people who have the dense model."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparsefw._files import held, sync_folder
from sparsefw._text import printable
from sparsefw.errors import InvalidArgument, invalid
from sparsefw.hf.folder import resolve_out
from sparsefw.hf.model_files import model_files
from sparsefw.hf.packing import shards
from sparsefw.hf.packing.codec import CHUNK, SIZES, words_type
from sparsefw.hf.packing.folders import CONFIG, Replaceable, bar, list_files, new_folder
from sparsefw.hf.packing.report import mebibytes
from sparsefw.hf.packing.shards import Entry, Hashed, Part, Shard, ShardWriter, read_shard
from sparsefw.hf.values import truth

# In the metadata of a file of masks: its format, and JSON about every tensor of the model.
FORMAT: Final = "sparsefw.masks"
TENSORS: Final = "sparsefw.tensors"
_DIGEST: Final = hashlib.sha256().hexdigest()
_PIECE: Final = 8 << 20


@dataclasses.dataclass(frozen=True)
class Masks:
    """The report of `pack_masks`.

    Attributes:
        out:     the file.
        masked:  tensors with a mask.
        weights: of these.
        kept:    of the weights.
        size:    bytes of the file.
        changed: tensors whose kept values are others than in the dense model: the masks make the pruned
                 model only where there are none.
    """

    out: str
    masked: int
    weights: int
    kept: int
    size: int
    changed: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        text = (
            f"{self.out}: masks of {self.masked} tensors, {1 - self.kept / self.weights:.3%} of "
            f"{self.weights} weights removed; {mebibytes(self.size)}\n"
        )
        if self.changed:
            text += (
                f"{len(self.changed)} tensors have other values than the dense model ({self.changed[0]} is "
                "one): the masks make the dense model with zeros, not the pruned model. pack keeps all of it"
            )
        else:
            text += "with the dense model they make the pruned model, every tensor bit for bit"
        return "\n".join(map(printable, text.split("\n")))


def pack_masks(
    folder: str | os.PathLike[str],
    dense: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Masks:
    """Writes the masks of a pruned model to a file of safetensors. Tensors of which nothing was removed have
    none; they are named with their digests.

    Args:
        folder: the pruned model.
        dense:  the model that was pruned.
        out:    a new file, in neither folder.
        overwrite: replace the file of masks that is there.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): not two folders with the same tensors, or nothing was removed.
    """
    place = Path(out)
    _check_place(place, (folder, dense), truth("overwrite", overwrite))
    with held(place.resolve()):
        return _pack_masks(folder, dense, place, overwrite, progress)


def _pack_masks(
    folder: str | os.PathLike[str],
    dense: str | os.PathLike[str],
    place: Path,
    overwrite: bool,
    progress: bool,
) -> Masks:
    """As pack_masks, whose place nobody else writes meanwhile."""
    pruned, whole = _entries(Path(folder)), _entries(Path(dense))
    if different := _differences(pruned, whole):
        raise invalid(f"{folder}: is not pruned from {dense}: {different}")
    facts = {name: {"dtype": e.dtype, "shape": e.shape, "sha256": _DIGEST} for name, (_, e) in whole.items()}
    room = ShardWriter.room_for(
        ((name, e.shape) for name, (_, e) in whole.items()), {FORMAT: "1", TENSORS: json.dumps(facts)}
    )
    file = place.resolve()  # what a link leads to, not the link
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    masked = weights = kept = 0
    changed = []
    try:
        with (
            ShardWriter(partial, room) as writer,
            bar("masks", sum(entry.size for _, entry in whole.values()), progress) as advance,
        ):
            for name, (path, entry) in whole.items():
                mask, count, digest, same = _compare(path, entry, *pruned[name])
                facts[name]["sha256"] = digest
                if not same:
                    changed.append(name)
                if mask is not None:
                    writer.write(mask.tobytes())
                    writer.add(name, "U8", [len(mask)])
                    masked, weights, kept = masked + 1, weights + entry.elements, kept + count
                advance(entry.size)
            if not masked:
                raise invalid(f"{folder}: has no zero where {dense} has none: nothing was removed")
            writer.close({FORMAT: "1", TENSORS: json.dumps(facts)})
        _check_place(place, (folder, dense), overwrite)  # others may have written meanwhile
        partial.rename(file)
        sync_folder(file.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return Masks(os.fspath(place), masked, weights, kept, place.stat().st_size, changed)


def _check_place(place: Path, sources: Sequence[str | os.PathLike[str]], overwrite: bool) -> None:
    """Raises InvalidArgument where the file would be part of a model, or in place of something else."""
    for source in sources:
        if resolve_out(place).is_relative_to(Path(source).resolve()):
            raise invalid(f"{place}: must not be in the folder that is read, {os.fspath(source)}")
    if not place.exists():
        return
    if not (overwrite and place.is_file()):
        hint = "; overwrite=True (--overwrite) replaces it" if place.is_file() else ""
        raise invalid(f"{place}: exists and is not overwritten{hint}")
    if place.stat().st_size and not _has_masks(place):
        raise invalid(f"{place}: exists and is no file of masks; it is not overwritten")


def _has_masks(path: Path) -> bool:
    try:
        return FORMAT in read_shard(path).metadata
    except InvalidArgument:  # no safetensors
        return False


def _compare(
    path: Path, entry: Entry, pruned_path: Path, pruned: Entry
) -> tuple[NDArray[np.uint8] | None, int, str, bool]:
    """(mask, or None where nothing was removed; how many it keeps; digest of dense weights with it; whether
    it is the pruned tensor)
    """
    masks, digest, same, removed, kept = [], hashlib.sha256(), True, False, 0
    can_be_pruned = entry.dtype in SIZES
    size = CHUNK * SIZES[entry.dtype] if can_be_pruned else _PIECE
    with open(path, "rb") as file, open(pruned_path, "rb") as other:
        pairs = zip(Part(file, entry).pieces(size), Part(other, pruned).pieces(size), strict=True)
        for ours, theirs in pairs:
            data: bytes | memoryview = ours
            if can_be_pruned:
                kind = words_type(entry.dtype)
                keep = np.frombuffer(theirs, kind) != 0
                words = np.frombuffer(ours, kind)
                result = np.where(keep, words, kind.type(0))
                removed = removed or not np.array_equal(words, result)
                masks.append(np.packbits(keep, bitorder="little"))
                kept += int(np.count_nonzero(keep))
                data = result.data.cast("B")
            digest.update(data)
            same = same and data == theirs
    return (np.concatenate(masks) if removed else None), kept, digest.hexdigest(), same


def apply_masks(
    file: str | os.PathLike[str],
    dense: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Copies the folder of a dense model with the masked weights set to zero. The digest of every tensor that
    results is compared: another model, or the same one in another dtype, is refused. `overwrite`: replaces a
    model in `out` that has no other files than `dense`.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no file of masks, a damaged one, or another model.
    """
    if Path(file).resolve().is_relative_to(resolve_out(out)):
        raise invalid(f"{file}: must not be in {out}")
    masks = read_shard(Path(file))
    facts = _facts(masks)
    source = Path(dense)
    whole = _entries(source)
    model = {name: Entry(name, f["dtype"], f["shape"], 0, 0) for name, f in facts.items()}
    if different := _differences(whole, {name: (Path(), entry) for name, entry in model.items()}):
        raise invalid(f"{dense}: is not the model that {file} is of: {different}")
    _check_sizes(masks, whole)
    there = masks.by_name()
    models = model_files(source)
    names = list_files(source)
    total = sum((source / name).stat().st_size for name in names)
    replaces = Replaceable(CONFIG, names) if truth("overwrite", overwrite) else None
    with (
        new_folder(out, source, total, replaces) as partial,
        bar("applying masks", sum(path.stat().st_size for path in models), progress) as advance,
    ):
        for name in names:
            path, place = source / name, partial / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if path not in models:
                shards.copy_file(path, place)
                continue
            shard = read_shard(path)
            with Hashed(place) as target:
                target.write(shards.length_and(shard.header))
                for entry in shard.entries:
                    digest = hashlib.sha256()
                    for data in _masked(path, entry, masks.path, there.get(entry.name)):
                        digest.update(data)
                        target.write(data)
                    if digest.hexdigest() != facts[entry.name]["sha256"]:
                        raise invalid(
                            f"{path}: {entry.name}: has other weights than the model that {file} is of"
                        )
                    advance(entry.size)
                target.close()
    return Path(out)


def _masked(path: Path, entry: Entry, file: Path, mask: Entry | None) -> Iterator[bytes | memoryview]:
    """The tensor's bytes, piece by piece."""
    with contextlib.ExitStack() as stack:
        part = Part(stack.enter_context(open(path, "rb")), entry)
        if mask is None:
            yield from part.pieces()
            return
        kind, bits = words_type(entry.dtype), Part(stack.enter_context(open(file, "rb")), mask)
        for piece in part.pieces(CHUNK * kind.itemsize):
            words = np.frombuffer(piece, kind)
            packed = np.frombuffer(bits.read(-(-len(words) // 8)), np.uint8)
            keep = np.unpackbits(packed, count=len(words), bitorder="little").view(np.bool_)
            yield np.where(keep, words, kind.type(0)).data.cast("B")


def _facts(masks: Shard) -> dict[str, Any]:
    """Dtype, shape and digest of every tensor of the model."""
    number = masks.metadata.get(FORMAT)
    if number is None:
        raise invalid(f"{masks.path}: is no file of masks")
    if number != "1":
        raise invalid(f"{masks.path}: has format {number}; this version reads 1")
    try:
        facts = json.loads(masks.metadata[TENSORS])
        sound = all(
            isinstance(f["dtype"], str) and isinstance(f["shape"], list) and isinstance(f["sha256"], str)
            for f in facts.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise invalid(f"{masks.path}: is damaged: {TENSORS} must have dtype, shape and sha256 by tensor")
    return dict(facts)


def _check_sizes(masks: Shard, whole: Mapping[str, tuple[Path, Entry]]) -> None:
    """One bit a weight, of tensors that the model has."""
    for entry in masks.entries:
        if entry.name not in whole:
            raise invalid(f"{masks.path}: {entry.name}: is no tensor of the model")
        weight = whole[entry.name][1]
        needed = -(-weight.elements // 8)
        if weight.dtype not in SIZES or entry.dtype != "U8" or entry.shape != [needed]:
            raise invalid(
                f"{masks.path}: {entry.name}: must be U8 [{needed}] for {weight.dtype} {weight.shape}; got "
                f"{entry.dtype} {entry.shape}"
            )


def _entries(folder: Path) -> dict[str, tuple[Path, Entry]]:
    """All tensors of a model, with their files."""
    return {entry.name: (path, entry) for path in model_files(folder) for entry in read_shard(path).entries}


def _differences(one: Mapping[str, tuple[Path, Entry]], other: Mapping[str, tuple[Path, Entry]]) -> str:
    """What is not the same, in words; "": nothing."""
    if one.keys() != other.keys():
        return f"{min(one.keys() ^ other.keys())} is in one of them only"
    for name, (_, entry) in one.items():
        theirs = other[name][1]
        if (entry.dtype, entry.shape) != (theirs.dtype, theirs.shape):
            return f"{name} is {entry.dtype} {entry.shape}, not {theirs.dtype} {theirs.shape}"
    return ""

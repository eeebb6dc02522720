"""Whole folders, packed and unpacked."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from tqdm.auto import tqdm

import sparsefw
from sparsefw._files import held, sync_folder
from sparsefw.errors import invalid
from sparsefw.hf.folder import replace_folder, resolve_out
from sparsefw.hf.model_files import model_files, read_json
from sparsefw.hf.packing import shards
from sparsefw.hf.packing.codec import CHUNK, SIZES, Decoder, Encoder, words_type
from sparsefw.hf.packing.report import Packed
from sparsefw.hf.packing.shards import Entry, Hashed, Part, ShardWriter, read_shard
from sparsefw.hf.values import truth

# In a packed folder: the digests of all files as they were, and the configuration, which is changed.
MANIFEST: Final = "sparsefw-packed.json"
CONFIG: Final = "config.json"
# The quant_method of config.json, under which transformers finds the loader.
METHOD: Final = "sparsefw"
FORMAT: Final = 1
# In the metadata of a packed file: its header as it was.
HEADER: Final = "sparsefw.header"
# Bytes of the smallest tensor that is packed.
_SMALLEST: Final = 1024
Advance = Callable[[int], object]


def pack(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Packed:
    """Writes a smaller folder from which `unpack` makes the same files again, byte for byte. Nothing is at
    `out` before all of it was written and read back.

    Args:
        folder: of a transformers model with safetensors files.
        out:    a new or empty folder.
        overwrite: replace a packed folder in `out` that has no other files than the new one.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no such model, or one that is quantised or packed already.
    """
    source, began = Path(folder), time.monotonic()
    config = _read_config(source)
    models = model_files(source)
    names = list_files(source)
    report = Packed(os.fspath(out))
    total = sum(path.stat().st_size for path in models)
    replaces = Replaceable(MANIFEST, {*names, MANIFEST}) if truth("overwrite", overwrite) else None
    with new_folder(out, source, 0, replaces) as partial, bar("packing", 2 * total, progress) as advance:
        files: dict[str, Any] = {}
        for name in names:
            path = source / name
            place = partial / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if path in models:
                size, digest = path.stat().st_size, _pack_shard(path, place, report, advance)
                if unpack_shard(place, None, size, advance) != digest:
                    raise invalid(f"{path}: changed while it was packed")
            elif name == CONFIG:
                size, digest = _pack_config(config, models[0], place)
            else:
                size, digest = shards.copy_file(path, place)
            files[name] = {"bytes": size, "sha256": digest}
            report.rest.before += size
        manifest = {"format": FORMAT, "made_by": f"sparsefw {sparsefw.__version__}", "files": files}
        with Hashed(partial / MANIFEST) as file:
            file.write((json.dumps({**manifest, CONFIG: config}, indent=1) + "\n").encode())
            file.close()
        report.rest.after = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    report.rest.before -= report.pruned.before + report.dense.before
    report.rest.after -= report.pruned.after + report.dense.after
    report.seconds = time.monotonic() - began
    return report


def unpack(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Makes the folder that was packed again; the digest of every file is compared. Permissions, times and
    empty folders are not kept, and links became files. `overwrite`: replaces a model in `out` that has no
    other files than those that were packed.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no packed folder, a damaged one, or one of a later format.
    """
    source = Path(folder)
    manifest = read_manifest(source)
    files = manifest["files"]
    models = model_files(source)
    total = sum(entry["bytes"] for entry in files.values())
    replaces = Replaceable(CONFIG, files) if truth("overwrite", overwrite) else None
    with (
        new_folder(out, source, total, replaces) as partial,
        bar("unpacking", sum(files[path.name]["bytes"] for path in models), progress) as advance,
    ):
        for name, entry in files.items():
            path, place = source / name, partial / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if path in models:
                digest = unpack_shard(path, place, entry["bytes"], advance)
            elif name == CONFIG:
                with Hashed(place) as file:
                    file.write(manifest[CONFIG].encode(errors="replace"))
                    digest = file.close()
            elif path.stat().st_size != entry["bytes"]:
                raise invalid(f"{path}: is damaged: must have {entry['bytes']} bytes")
            else:
                _, digest = shards.copy_file(path, place)
            if digest != entry["sha256"]:
                raise invalid(f"{path}: is damaged: its digest is not that of the file that was packed")
    return resolve_out(out)


@dataclasses.dataclass(frozen=True)
class Replaceable:
    """A folder that may be there, and gives way to the new one.

    Attributes:
        marker: it has this file.
        files:  it has no others, because what is not written again would be lost.
    """

    marker: str
    files: Collection[str]


@contextlib.contextmanager
def new_folder(
    out: str | os.PathLike[str], source: Path, needed: int = 0, replaces: Replaceable | None = None
) -> Iterator[Path]:
    """A folder beside its place, moved there when it is complete. Where the work ends early nothing stays.

    Args:
        source: what is read meanwhile.
        needed: bytes that will be written.
        replaces: what may be there; None: nothing.
    """
    place = resolve_out(out)
    _check_there(place, replaces)
    if place.is_relative_to(source.resolve()):
        raise invalid(f"{place}: must not be in the folder that is read, {source}")
    if replaces and source.resolve().is_relative_to(place):
        raise invalid(f"{source}: must not be in {place}, which is replaced")
    with held(place):
        yield from _filled(place, needed, replaces)


def _filled(place: Path, needed: int, replaces: Replaceable | None) -> Iterator[Path]:
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        if (free := shutil.disk_usage(partial).free) < needed:
            raise invalid(f"{place}: needs {needed} bytes; its file system has {free}")
        yield partial
        for path in partial.rglob("*"):
            if path.is_dir():
                sync_folder(path)
        sync_folder(partial)
        _check_there(place, replaces)  # others may have written meanwhile
        replace_folder(partial, place) if replaces else partial.rename(place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(place.parent)


def _check_there(place: Path, replaces: Replaceable | None) -> None:
    """Raises InvalidArgument where something is there that would be lost, or that cannot give way."""
    if os.path.ismount(place):
        raise invalid(f"{place}: is a mount point and cannot be replaced; give a folder in it")
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if replaces is None:
        raise invalid(f"{place}: exists and is not overwritten; overwrite=True (--overwrite) replaces it")
    if not (place / replaces.marker).is_file():
        raise invalid(f"{place}: exists and has no {replaces.marker}; it is not overwritten")
    if others := set(_names(place)) - set(replaces.files):
        raise invalid(
            f"{place}: holds {min(others)}, which would be lost: this call does not write it; the folder is "
            "not overwritten"
        )


def list_files(folder: Path) -> list[str]:
    """All files, with what links lead to.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): something is neither file nor folder.
    """
    names = sorted(_names(folder))
    for path in (folder / name for name in names):
        if path.is_dir():
            raise invalid(f"{path}: is a link to a folder; only files may be links")
        if not path.is_file():
            raise invalid(f"{path}: is no file that can be read")
    return names


def _names(folder: Path) -> Iterator[str]:
    """Whatever is no folder, links to folders included."""
    for place, inner, files in os.walk(folder, onerror=_raise):
        for path in (Path(place) / name for name in (*files, *inner)):
            if path.is_symlink() or not path.is_dir():
                yield path.relative_to(folder).as_posix()


def _raise(error: OSError) -> NoReturn:
    raise error


def _read_config(folder: Path) -> str:
    path = folder / CONFIG
    if (folder / MANIFEST).exists():
        raise invalid(f"{folder}: is packed already")
    try:
        config, text = read_json(path)
    except FileNotFoundError:
        raise invalid(f"{folder}: has no {CONFIG}; it must be a folder of transformers") from None
    if not isinstance(config, dict):
        raise invalid(f"{path}: must be an object; got {type(config).__name__}")
    if config.get("quantization_config") is not None:
        raise invalid(f"{folder}: has quantised weights, which cannot be packed")
    return text


def _pack_config(text: str, model: Path, out: Path) -> tuple[int, str]:
    """(bytes, digest) of the configuration as it was. The new one names the loader, and the dtype, which
    transformers cannot see in packed bytes. `model`: the first file of tensors.
    """
    config = json.loads(text)
    if config.get("dtype") is None and config.get("torch_dtype") is None:
        config["dtype"] = shards.first_dtype(model)
    config["quantization_config"] = {"quant_method": METHOD, "format": FORMAT}
    with Hashed(out) as file:
        file.write((json.dumps(config, indent=2) + "\n").encode())
        file.close()
    return shards.digest_of(text.encode())


def _pack_shard(path: Path, out: Path, report: Packed, advance: Advance) -> str:
    """Returns the digest of the file as it was."""
    shard = read_shard(path)
    metadata = {**shard.metadata, HEADER: shard.header}
    room = ShardWriter.room_for([(entry.name, entry.shape) for entry in shard.entries], metadata)
    encoder = Encoder()
    digest = Hashed(None)
    digest.write(shards.length_and(shard.header))
    with open(path, "rb") as file, ShardWriter(out, room) as writer:
        for entry in shard.entries:
            zeros = _pack_tensor(file, entry, writer, encoder, digest, advance)
            part = report.pruned if zeros >= max(1, entry.elements // 8) else report.dense
            part.add(entry.elements, zeros, entry.size, writer.size)
            if _is_packed(entry):
                writer.add(entry.name, "U8", [writer.size])
            else:
                writer.add(entry.name, entry.dtype, entry.shape)
        writer.close(metadata)
    return digest.close()


def _is_packed(entry: Entry) -> bool:
    """Others stay as they are."""
    return entry.dtype in SIZES and entry.size >= _SMALLEST


def _pack_tensor(
    file: Any, entry: Entry, writer: ShardWriter, encoder: Encoder, digest: Hashed, advance: Advance
) -> int:
    """Returns how many values are zero."""
    zeros, packed = 0, _is_packed(entry)
    kind = words_type(entry.dtype) if entry.dtype in SIZES else np.dtype(np.uint8)
    if packed:
        writer.write(encoder.begin(entry.dtype, entry.shape))
    for piece in Part(file, entry).pieces(CHUNK * kind.itemsize):
        digest.write(piece)
        words = np.frombuffer(piece, kind)
        zeros += len(words) - int(np.count_nonzero(words))
        writer.write(encoder.chunk(words) if packed else piece)
        advance(len(piece))
    if packed:
        writer.write(encoder.end(writer.size))
    return zeros if entry.dtype in SIZES else 0


def unpack_shard(path: Path, out: Path | None, size: int, advance: Advance) -> str:
    """Returns the digest of the file that was packed.

    Args:
        out:  None: only the digest is wanted.
        size: bytes that the file had.
    """
    packed = read_shard(path)
    if HEADER not in packed.metadata:
        raise invalid(f"{path}: has no {HEADER} in its metadata: it is no packed file")
    shard = shards.shard_of_header(path, packed.metadata[HEADER])
    if shard.size != size:
        raise invalid(f"{path}: its {HEADER} is of {shard.size} bytes; the file had {size}")
    there = packed.by_name()
    if there.keys() != shard.by_name().keys():
        raise invalid(f"{path}: must have the tensors that its {HEADER} names")
    with open(path, "rb") as file, Hashed(out) as target:
        target.write(shards.length_and(shard.header))
        for entry in shard.entries:
            _unpack_tensor(file, path, there[entry.name], entry, target, advance)
        return target.close()


def _unpack_tensor(
    file: Any, path: Path, there: Entry, entry: Entry, target: Hashed, advance: Advance
) -> None:
    """`there`: as it is in the packed file; `entry`: as it was."""
    part = Part(file, there)
    if (there.dtype, there.shape) == (entry.dtype, entry.shape) and there.size == entry.size:
        for piece in part.pieces():
            target.write(piece)
            advance(len(piece))
        return
    with named(f"{path}: {entry.name}"):
        decoder = Decoder(part)
        if (decoder.dtype, decoder.shape) != (entry.dtype, entry.shape):
            raise invalid(f"is {decoder.dtype} {decoder.shape}; the header has {entry.dtype} {entry.shape}")
        if entry.size != entry.elements * SIZES[entry.dtype]:
            raise invalid(f"its header has {entry.size} bytes for {entry.dtype} {entry.shape}")
        for words in decoder.chunks():
            target.write(words.data.cast("B"))
            advance(words.nbytes)


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """Errors begin with the name of the tensor."""
    try:
        yield
    except sparsefw.InvalidArgument as error:
        raise error.with_message(f"{what}: {error.message}") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """That of a packed folder, which has all files that it names, and no others."""
    path = folder / MANIFEST
    try:
        manifest, _ = read_json(path)
        files, number = manifest["files"], manifest["format"]
    except FileNotFoundError:
        raise invalid(f"{folder}: has no {MANIFEST}: it is no packed folder") from None
    except (KeyError, TypeError) as error:
        raise invalid(f"{path}: is damaged: {error}") from None
    if number != FORMAT:
        raise invalid(f"{path}: has format {number}; this version reads {FORMAT}")
    sound = (
        isinstance(files, dict)
        and isinstance(manifest.get(CONFIG), str)
        and all(
            isinstance(entry, dict)
            and type(entry.get("bytes")) is int
            and entry["bytes"] >= 0
            and isinstance(entry.get("sha256"), str)
            for entry in files.values()
        )
    )
    if not sound:
        raise invalid(f"{path}: is damaged: it must have files with bytes and sha256, and {CONFIG}")
    # With this no name leads out of the folder.
    here = {name for name in list_files(folder) if name != MANIFEST}
    if here != files.keys():
        name = min(here ^ files.keys())
        raise invalid(
            f"{folder}: {name}: {'is not in' if name in here else 'is missing; it is in'} {MANIFEST}"
        )
    return dict(manifest)


@contextlib.contextmanager
def bar(what: str, total: int, shown: bool) -> Iterator[Advance]:
    """A progress bar over bytes."""
    with tqdm(total=total, desc=what, unit="B", unit_scale=True, disable=not shown) as bar:
        yield bar.update

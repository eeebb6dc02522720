"""Tensors in safetensors files, bfloat16 included, which NumPy does not know; files written as a whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import grpc

from sparsefw.arrays import Buffer, byte_size
from sparsefw.errors import invalid, refuse

_DTYPES: Final = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
_BIGGEST_HEADER: Final = 100 << 20
# Begins what Git leaves in place of a file that was not fetched.
_POINTER: Final = b"version https://git-lfs"
# Names of what this process has open.
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/(?:fd/(\d+)|(stdout|stderr))")
_STANDARD: Final = {"stdout": 1, "stderr": 2}


@contextlib.contextmanager
def held(place: Path, inside: bool = False) -> Iterator[None]:
    """Holds for this process alone what it writes at `place`, by a lock beside it or inside of it.

    Raises:
        FailedPrecondition (STATE_IN_USE): another process holds it.
        InvalidArgument (CLIENT_ARGUMENT): its file system has no locks.
    """
    path = place / ".sparsefw.lock" if inside else place.with_name(f".{place.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(file, place, "writes there")
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    break
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the one that held it has removed it
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def lock(file: int, place: Path, what: str) -> None:
    """Locks an open file, or raises as `held`. `what`: the other process does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refuse(
            grpc.StatusCode.FAILED_PRECONDITION, "STATE_IN_USE", f"{place}: another process {what}"
        ) from None
    except OSError as error:
        raise invalid(
            f"{place}: must be on a file system with locks (flock): {error.strerror}; put it elsewhere"
        ) from None


def split_name(argument: str) -> tuple[str, str]:
    """(file, tensor or "") of FILE[:TENSOR]."""
    if Path(argument).exists():
        return argument, ""
    path, colon, name = argument.rpartition(":")
    return (path, name) if colon else (argument, "")


def open_tensor(argument: str) -> tuple[Buffer, str]:
    """(bytes, mapped from the file; name) of FILE[:TENSOR], the name being optional where there is one.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no such file or tensor, or no safetensors file.
    """
    path, wanted = split_name(argument)
    start, header = read_header(path)
    name = wanted or (next(iter(header)) if len(header) == 1 else "")
    if name not in header:
        held = ", ".join(f'"{key}"' for key in sorted(header))
        asked = f'there is no tensor "{name}"' if name else "which tensor is not said"
        raise invalid(f"{path}: {asked}; it holds {held}")
    kind, shape, (begin, end) = (header[name][key] for key in ("dtype", "shape", "data_offsets"))
    if kind not in _DTYPES:
        raise invalid(f"{path}:{name}: must be {', '.join(_DTYPES)}; got {kind}")
    needed = byte_size(_DTYPES[kind], shape)
    if end - begin != needed:
        raise invalid(f"{path}:{name}: must have {needed} bytes for {kind} {shape}; got {end - begin}")
    try:
        with open(path, "rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise invalid(f"{path}: cannot be read: {error}") from None
    return Buffer(mapped[start + begin : start + end], _DTYPES[kind], tuple(shape)), name


def read_header(path: str | os.PathLike[str]) -> tuple[int, dict[str, Any]]:
    """(where the data begins, entries by tensor) of a safetensors file, all of whose data is there.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no such file, no safetensors file, or only the beginning of one.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(len(_POINTER))
            length = int.from_bytes(first[:8], "little")
            # In other files the length can be any number, far more than there is memory.
            sound = len(first) >= 8 and length <= min(size - 8, _BIGGEST_HEADER)
            file.seek(8)
            text = file.read(length) if sound else b""
    except OSError as error:
        raise invalid(f"{path}: cannot be read: {error.strerror}") from None
    entries = _entries(text)
    if entries is None:
        pointer = ": it is a pointer of Git LFS; `git lfs pull` gets the file itself"
        raise invalid(f"{path}: is no safetensors file{pointer if first == _POINTER else ''}")
    # A slice of a file that was cut would be fewer tokens, without an error.
    needed = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if needed > size - 8 - length:
        raise invalid(
            f"{path}: is cut short: its tensors need {needed} bytes; it has {size - 8 - length} for them"
        )
    return 8 + length, entries


def _entries(text: bytes) -> dict[str, Any] | None:
    """Those of a header; None: it is none."""
    try:
        entries: dict[str, Any] = json.loads(text)
        entries.pop("__metadata__", None)
        for entry in entries.values():
            begin, end = entry["data_offsets"]
            numbers = [begin, end - begin, *entry["shape"]]
            if not isinstance(entry["dtype"], str) or any(type(n) is not int or n < 0 for n in numbers):
                return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return entries


def save(
    path: str,
    tensors: Mapping[str, tuple[bytes | bytearray, str, tuple[int, ...]]],
    metadata: Mapping[str, str],
) -> None:
    """Writes (bytes, dtype, shape) by name. Masks are a byte an element here, as safetensors' BOOL."""
    names = {theirs: ours for ours, theirs in _DTYPES.items()} | {"bool": "BOOL"}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, (data, dtype, shape) in tensors.items():
        header[name] = {
            "dtype": names[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with atomically(Path(path)) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data, _, _ in tensors.values():
            file.write(data)


@contextlib.contextmanager
def atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there as a whole or, where its writing ends early, as it was before; also after a power
    loss. What is no file (a pipe, /dev/stdout) is written as it is.

    Raises:
        OSError: it cannot be written; the error names it.
    """
    try:
        with _written(path) as file:
            yield file
    except OSError as error:
        # A full disk is an error of the descriptor, which has no name.
        error.filename = str(path) if error.filename is None else error.filename
        raise


@contextlib.contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    if (stream := _stream(path)) is not None:
        with stream as file:
            yield file
        return
    path = path.resolve()  # the file that a link leads to, not the link
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def check_absent(path: str, overwrite: bool) -> None:
    """Raises InvalidArgument where a file is there that holds something, unless it may be replaced."""
    if (
        not overwrite
        and os.path.isfile(path)
        and os.path.getsize(path) > 0
        and not _DESCRIPTOR.fullmatch(os.path.abspath(path))
    ):
        raise invalid(f"{path}: exists and is not overwritten; --overwrite replaces it")


def check_outputs(outputs: Mapping[str, str], inputs: Sequence[str], made: Sequence[str] = ()) -> None:
    """Raises InvalidArgument where a file could not be written at the end, which would lose the work, or
    would take the place of another one of the same command.

    Args:
        outputs: files by flag, in the order in which they are written.
        inputs:  FILE[:TENSOR].
        made:    folders that the command makes before it writes the files.
    """
    flags = list(outputs)
    for index, flag in enumerate(flags):
        path = outputs[flag]
        _check_place(flag, path, [os.path.realpath(folder) for folder in made])
        if any(_is_same(path, split_name(argument)[0]) for argument in inputs):
            raise invalid(f"{flag}: {path} is an input and would be lost")
        for other in flags[:index]:
            if _is_same(path, outputs[other]):
                raise invalid(f'{other} and {flag} must be two files; got "{path}"')


def _check_place(flag: str, path: str, made: Sequence[str]) -> None:
    if os.path.isdir(path or "."):  # "" is what an unset variable of a shell leaves
        raise invalid(f'{flag} must be a file; got the folder "{path or "."}"')
    # What is written as it is needs no folder, and who may write it is known when it is opened.
    if _DESCRIPTOR.fullmatch(os.path.abspath(path)) or (os.path.exists(path) and not os.path.isfile(path)):
        return
    folder = os.path.dirname(os.path.realpath(path))  # the file that a link leads to is written
    if folder in made:
        return
    if not os.path.isdir(folder):
        raise invalid(f"{flag}: {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):  # the new file is written beside an old one, and replaces it
        raise invalid(f"{flag}: {path}: {folder} is not writable")


def _is_same(path: str, other: str) -> bool:
    """Two paths of one file, which may not be there yet; /dev/null and pipes lose nothing."""
    if os.path.exists(path) and not os.path.isfile(path):
        return False
    with contextlib.suppress(OSError):  # one of them is not there
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _stream(path: Path) -> IO[bytes] | None:
    """What is written as it is; None: a file, which is replaced."""
    # Not where links lead: that may be a file to which the output of this program was redirected.
    name = os.path.abspath(path)
    if found := _DESCRIPTOR.fullmatch(name):
        # A copy goes on where the descriptor stands; opened anew the file would lose what is in it.
        return os.fdopen(os.dup(int(found[1]) if found[1] else _STANDARD[found[2]]), "wb")
    system = name.startswith(("/dev/", "/proc/")) and not name.startswith("/dev/shm/")
    return open(path, "wb") if system or (path.exists() and not path.is_file()) else None


def sync_tree(folder: Path) -> None:
    """Files and folders in it, and their names, are on the disk from now on."""
    for path in folder.rglob("*"):
        sync_folder(path) if path.is_dir() else _sync_file(path)
    sync_folder(folder)


def _sync_file(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names in it are on the disk from now on, where that can be asked for."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # it may be written but not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS):  # what file systems say that cannot
            raise
    finally:
        os.close(handle)

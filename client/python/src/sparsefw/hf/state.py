"""What a run has done so far, in a folder: it goes on from there after any end."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import tempfile
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sparsefw import errors
from sparsefw._files import atomically, lock, sync_folder
from sparsefw._text import printable
from sparsefw.errors import invalid

MANIFEST: Final = "manifest.json"
# What distillation found, in `State.save`.
DISTILLATION: Final = "distillation"
# Begins the names of folders of runs without a state_dir.
TEMPORARY: Final = ".sparsefw-"
_LOCK: Final = ".lock"
_TEMPORARY_OF: Final = ".temporary"  # holds the name of the machine
# In it: the run's own name. Two folders of the same work share no requests on a server.
_RUN: Final = "run"


def _digest_of(facts: Mapping[str, Any]) -> str:
    """The name of a run that was begun without one."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()


def _differences(there: Any, here: Any, path: str = "") -> list[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        found = []
        for key in dict.fromkeys([*there, *here]):
            inner = f"{path}.{key}" if path else key
            found += _differences(there.get(key), here.get(key), inner)
        return found
    return [] if there == here else [_difference(path, there, here)]


def _difference(path: str, there: Any, here: Any) -> str:
    """As the caller calls it; of digests only what they are of."""
    if path == "data":
        return "the calibration sequences differ (data, samples, sequence_length, seed or the tokenizer)"
    if path.startswith("model."):
        return f"the model differs ({path.removeprefix('model.')})"
    return f"{path.removeprefix('options.')} was {json.dumps(there)}, is {json.dumps(here)}"


def mark_temporary(folder: Path) -> None:
    """Lets `remove_abandoned` remove it once this run is gone. The run holds its lock."""
    (folder / _TEMPORARY_OF).write_text(socket.gethostname(), encoding="utf-8")


def remove_abandoned(place: Path) -> None:
    """Removes temporary folders of this machine's runs that were killed: those whose lock nobody holds.

    On network file systems a lock may hold on one machine alone.
    """
    for folder in place.glob(f"{TEMPORARY}*"):
        try:
            if (folder / _TEMPORARY_OF).read_text(encoding="utf-8") != socket.gethostname():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except (OSError, ValueError):  # it is a state_dir, of no run, or of another user
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)


def write_atomically(path: Path, text: str) -> None:
    """All of it or nothing, also after a power loss."""
    with atomically(path) as file:
        file.write(text.encode())


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """All of them or nothing, also after a power loss."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file(dict(tensors), partial)
    except SafetensorError as error:  # of a full disk, for example: it has neither number nor name
        found = re.search(r"os error (\d+)", str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)


@dataclasses.dataclass(frozen=True)
class BlockState:
    """A finished block: its tensors by name (packed masks, or new weights), its report records, and that of
    its refinement.
    """

    tensors: dict[str, Any]
    records: list[dict[str, Any]]
    refinement: dict[str, Any] | None = None


class State:
    """The folder of one run. One process at a time.

    A manifest says which run it is: digests of model and data, and every option that decides the outcome.
    A block counts as finished when its record is there and the digest in it is that of its tensors.

    Versions of packages and servers are kept with every result, not in the manifest: after an update the
    run goes on, since what is finished is as good as before, and the report says which made what.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Opens the run, or begins it.

        Raises:
            FailedPrecondition (STATE_DIFFERS): the folder is of another run; the message names what
                differs. (STATE_IN_USE): another process is at it.
            InvalidArgument (CLIENT_ARGUMENT): the folder holds other things.
        """
        self.folder = folder
        self._versions: dict[str, str] = {}
        self._ask: Callable[[], Mapping[str, str]] = dict
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._open(json.loads(json.dumps(facts)))
        except BaseException:
            self.close()
            raise

    def outlast(self) -> Path:
        """Makes a temporary folder one that stays, and says where it is then."""
        kept = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}kept-", dir=self.folder.parent))
        self.folder = self.folder.rename(kept)
        (kept / _TEMPORARY_OF).unlink(missing_ok=True)
        return kept

    def _open(self, facts: dict[str, Any]) -> None:
        lock(self._lock, self.folder, "prunes with this state_dir")
        path = self.folder / MANIFEST
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if any(entry.name not in (".lock", f".{MANIFEST}.partial") for entry in self.folder.iterdir()):
                raise invalid(f"{self.folder}: is not empty and has no {MANIFEST}") from None
            there = {**facts, _RUN: uuid.uuid4().hex[:16]}
            write_atomically(path, json.dumps(there, indent=1) + "\n")
        except ValueError:
            there = None
        if not isinstance(there, dict):
            raise invalid(f"{path}: is damaged")
        self.run: str = there.pop(_RUN, "") or _digest_of(facts)
        different = _differences(there, facts)
        if different:
            raise errors.refuse(
                grpc.StatusCode.FAILED_PRECONDITION,
                "STATE_DIFFERS",
                f"{self.folder}: is of another run: {'; '.join(different[:4])}. Give another state_dir to "
                "start anew; a model in memory that was pruned in part must be loaded anew",
                difference=different[0],
            )
        for left in self.folder.glob(".tmp*"):  # of safetensors, in a process that was killed
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets the folder go."""
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def save_block(self, index: int, block: BlockState, what: str = "block") -> None:
        """The tensors first, then the record that makes them count. `what`: begins the names of its files."""
        path = self.folder / f"{what}-{index:04d}.safetensors"
        write_tensors(path, block.tensors)
        record = {"digest": file_digest(path), "versions": self._made_by(), "layers": block.records}
        if block.refinement is not None:
            record["refinement"] = block.refinement
        write_atomically(self.folder / f"{what}-{index:04d}.json", json.dumps(record, indent=1) + "\n")

    def load_block(self, index: int, what: str = "block") -> BlockState | None:
        """None where it is not finished, or damaged: it is done again then."""
        record = self._read(f"{what}-{index:04d}")
        path = self.folder / f"{what}-{index:04d}.safetensors"
        if record is None or not path.exists() or file_digest(path) != record["digest"]:
            return None
        return BlockState(load_file(path), record["layers"], record.get("refinement"))

    def save(self, name: str, value: Any) -> None:
        """Any other result, as JSON."""
        record = {"versions": self._made_by(), "value": value}
        write_atomically(self.folder / f"{name}.json", json.dumps(record, indent=1) + "\n")

    def forget(self, name: str) -> None:
        """Removes such a result: it does not count from now on."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        sync_folder(self.folder)

    def load(self, name: str) -> Any:
        """None where there is none."""
        record = self._read(name)
        # A folder from before versions were kept has the value alone.
        return record["value"] if record is not None and record.keys() == {"versions", "value"} else record

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def work_with(self, ask: Callable[[], Mapping[str, str]], blocks: int) -> None:
        """Keeps versions with every result from now on, and warns where earlier ones have others.

        Args:
            ask:    what they are; again for every result, since a server may be updated during a run.
            blocks: of the model.
        """
        self._ask, self._versions = ask, dict(ask())
        there = self.versions(blocks)
        # Where nothing is asked of a server any more, its version does not matter.
        changed = [name for name in there if there[name] != self._versions.get(name, there[name])]
        if changed:
            names = "; ".join(f"{name} {there[name]}, now {self._versions.get(name)}" for name in changed)
            warnings.warn(
                printable(
                    f"{self.folder}: what is finished was made with other versions: {names}. The run goes "
                    "on, but its outcome is not that of one version; to prune it all with these, remove the "
                    "folder"
                ),
                RuntimeWarning,
                stacklevel=2,
            )

    def _made_by(self) -> dict[str, str]:
        # A server that is away just now must not cost a result that is here: then it is as last seen.
        with contextlib.suppress(errors.Error):
            self._versions = dict(self._ask())
        return self._versions

    def versions(self, blocks: int) -> dict[str, str]:
        """Versions of packages and servers that made the results so far, by name. Where there are
        several, all, with what each made: "0.4.0 (blocks 0-3), 0.5.0 (blocks 4-7; distillation)".
        """
        made: dict[str, dict[str, dict[str, list[int]]]] = {}
        kinds = {"block": "blocks", "curve": "curves", "outliers": "outliers"}
        for what, index in itertools.product(kinds, range(blocks)):
            record = self._read(f"{what}-{index:04d}")
            if record is not None:
                for name, version in (record.get("versions") or {"server": "unknown"}).items():
                    by_what = made.setdefault(name, {}).setdefault(version, {})
                    by_what.setdefault(kinds[what], []).append(index)
        of_distillation = (self._read(DISTILLATION) or {}).get("versions") or {}
        for name, version in of_distillation.items():
            if name != "server":  # it takes no part in it
                made.setdefault(name, {}).setdefault(version, {})[DISTILLATION] = []
        return {name: _listed(versions) for name, versions in made.items()}


def _listed(versions: Mapping[str, Mapping[str, list[int]]]) -> str:
    if len(versions) == 1:
        return next(iter(versions))
    return ", ".join(
        f"{version} ({'; '.join(f'{what} {_ranges(indices)}'.rstrip() for what, indices in made.items())})"
        for version, made in versions.items()
    )


def _ranges(indices: list[int]) -> str:
    """ "0-3, 7"; "" for what is not of blocks."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ", ".join("-".join(map(str, run)) for run in runs)


def file_digest(path: Path) -> str:
    """The digest of the bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The folder that a run leaves: weights, tokenizer, sparsefw.json, a section of the model card."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparsefw._files import held, sync_folder, sync_tree
from sparsefw.errors import InvalidArgument, invalid
from sparsefw.hf.report import CERTIFICATE, Report
from sparsefw.hf.values import finite

FACTS: Final = "sparsefw.json"
# What a run keeps in a folder that it fills; the second is the model before it is complete.
_OWN: Final = ".sparsefw"
_PARTIAL: Final = ".sparsefw.partial"
_BEGIN: Final = "<!-- sparsefw begin -->"
_END: Final = "<!-- sparsefw end -->"


def resolve_out(out: str | os.PathLike[str]) -> Path:
    """Where the folder really is: what a link leads to is replaced, never the link."""
    try:
        return Path(out).resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise invalid(f"out={os.fspath(out)}: is no place for a folder: {error}") from None


def check_out(out: Path, state_dir: Path | None = None, model: Path | None = None) -> None:
    """Raises InvalidArgument where the folder could not be written at the end of a run: before hours of work
    rather than after them.

    Args:
        out:       of `resolve_out`.
        state_dir, model: of the run; replacing `out` must not remove them.
    """
    _check_contents(out)
    if state_dir is not None and state_dir.resolve().is_relative_to(out):
        raise invalid(f"state_dir must not be in out, which is replaced at the end; got {state_dir} in {out}")
    if model is not None and model.resolve().is_relative_to(out):
        raise invalid(f"the model must not be in out, which is replaced at the end; got {model} in {out}")
    _check_writable(out)


def hold(out: Path) -> contextlib.AbstractContextManager[None]:
    """Holds it for one run: two that write it at a time would mix their models."""
    return held(out, _goes_inside(out))


def check_room(out: Path, needed: int) -> None:
    """Raises InvalidArgument where the disk has less than these bytes free."""
    free = shutil.disk_usage(out if _goes_inside(out) else out.parent).free
    if free < needed:
        raise invalid(f"{out}: needs {needed} bytes for the pruned model; its file system has {free}")


def _check_writable(out: Path) -> None:
    place = out if _goes_inside(out) else out.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        # What permissions, access lists and the kind of file system say together.
        os.rmdir(tempfile.mkdtemp(prefix=".sparsefw-", dir=place))
    except OSError as error:
        raise invalid(f"{out}: cannot be written: {place}: {error.strerror}") from None


def _check_contents(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir() or (not (out / FACTS).exists() and {p.name for p in _foreign(out)} - _moved(out)):
        raise invalid(f"{out}: exists and is no model that was pruned before; it is not overwritten")
    if os.path.ismount(out) and (out / FACTS).exists():
        raise invalid(f"{out}: is a mount point with a pruned model and cannot be replaced; empty it")


def check_own(out: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidArgument where the pruned model in `out` is of none of these runs (their settings), or
    where somebody has put other files there since.
    """
    if not (out / FACTS).exists():
        return
    there = _facts(out)
    if there.get("settings") not in [json.loads(json.dumps(finite(settings))) for settings in runs]:
        raise invalid(
            f"{out}: exists and is not overwritten: it holds a pruned model"
            f"{' of another run' if runs else ''}; overwrite=True (--overwrite) replaces it"
        )
    if "files" not in there:
        raise invalid(
            f"{out}: exists and is not overwritten: it was written by an earlier version, which kept no list "
            "of its files; overwrite=True (--overwrite) replaces it"
        )
    others = sorted({name for name in _files(out) if not name.startswith(_OWN)} - {*there["files"]})
    if others:
        raise invalid(
            f"{out}: exists and is not overwritten: it holds {others[0]}, which is not of the pruned model; "
            "move it away, or overwrite=True (--overwrite) removes it"
        )


def _facts(folder: Path) -> dict[str, Any]:
    """The facts of a pruned model; {} where they are missing or damaged."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _files(folder: Path) -> list[str]:
    """Their names within the folder, sorted."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _moved(out: Path) -> set[str]:
    """What a run that ended in `_move_up` left in its place: files of a complete model that are not beside
    its facts any more.
    """
    partial = out / _PARTIAL
    names = {name.partition("/")[0] for name in _facts(partial).get("files", [])}
    return {name for name in names if not (partial / name).exists()}


def _foreign(out: Path) -> list[Path]:
    """What is in the folder and not of this program or, of a new disk, the file system's."""
    skipped = {"lost+found"} if os.path.ismount(out) else set()
    return [p for p in out.iterdir() if p.name not in skipped and not p.name.startswith(_OWN)]


def _goes_inside(out: Path) -> bool:
    """The folder is there and is filled, not replaced: it may be a mount point, and its parent read-only."""
    return out.is_dir() and not (out / FACTS).exists()


def near(out: Path) -> Path | None:
    """A folder on the same disk for what is needed meanwhile."""
    if _goes_inside(out):
        return out
    return out.parent if out.parent.is_dir() else None


def write_folder(
    out: Path,
    report: Report,
    tokenizer: Any,
    write: Callable[[Path], None],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Writes it beside its place and moves it there when it is complete; into an empty folder that is there
    from within, sparsefw.json last.

    Args:
        check: raises InvalidArgument where what is at `out` at that time must stay.
    """
    _check_writable(out)
    inside = _goes_inside(out)
    partial = out / _PARTIAL if inside else out.with_name(f".{out.name}.partial")
    for name in _moved(out) if inside else ():
        _remove(out / name)
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(partial)
        if tokenizer is not None and hasattr(tokenizer, "save_pretrained"):
            tokenizer.save_pretrained(partial)
        _add_facts(partial, report)
    except BaseException:  # of a full disk it would take the rest
        shutil.rmtree(partial, ignore_errors=True)
        raise
    try:
        _check_contents(out)
        check()
    except InvalidArgument as error:
        kept = _set_aside(partial)
        raise error.with_message(f"{error.message}; the pruned model of this run is {kept}") from None
    if inside:
        _move_up(partial, out)
    else:
        try:
            replace_folder(partial, out)
        except OSError as error:
            kept = _set_aside(partial) if partial.exists() else out
            raise invalid(
                f"{out}: cannot be replaced: {error.strerror}; the pruned model is {kept}"
            ) from None


def _add_facts(partial: Path, report: Report) -> None:
    """The section of the model card, sparsefw.json, and all of it on the disk."""
    card = partial / "README.md"
    # Cards are not always UTF-8; other bytes are written as they were read.
    text = card.read_text(encoding="utf-8", errors="surrogateescape") if card.exists() else ""
    card.write_text(with_section(text, section(report)), encoding="utf-8", errors="surrogateescape")
    facts = {**report.to_dict(), "files": sorted({*_files(partial), FACTS})}
    (partial / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    sync_tree(partial)  # the model that it replaces is removed afterwards


def _set_aside(partial: Path) -> Path:
    """A name of its own: the next run for the same place begins with `partial` anew."""
    kept = Path(tempfile.mkdtemp(prefix=f"{partial.name}-", dir=partial.parent))
    return partial.rename(kept)


def _move_up(partial: Path, out: Path) -> None:
    """Until the last file is moved the folder `partial` says that this is unfinished, and whose it is."""
    for entry in sorted(partial.iterdir(), key=lambda path: (path.name == FACTS, path.name)):
        entry.replace(out / entry.name)
    sync_folder(out)
    partial.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_folder(partial: Path, out: Path) -> None:
    """The folder that is there, if any, goes when the new one is in its place."""
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        if out.exists():
            out.rename(old)
        partial.rename(out)
    except BaseException:  # an interrupt, too: else nothing would be in its place
        if old.exists() and not out.exists():
            old.rename(out)
        raise
    sync_folder(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def with_section(text: str, new: str) -> str:
    """A model card with this section, instead of the one from an earlier run."""
    text = re.sub(f"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", "\n", text, flags=re.DOTALL)
    return f"{text.rstrip()}\n\n{_BEGIN}\n{new}\n{_END}\n".lstrip("\n")


def section(report: Report) -> str:
    """What the model card says."""
    settings = report.settings
    table = report.summary()
    lines = [
        "## Pruning",
        "",
        f"{len(report.layers)} weight matrices were pruned with SparseFW: {report.sparsity:.2%} of their"
        f" weights are zero (method {settings['method']}, pattern {settings['pattern']},"
        f" {settings['samples']} calibration sequences of up to {settings['sequence_length']} tokens)."
        f" `{FACTS}` has every layer's losses and certificate.",
        "",
        "| " + " | ".join(table[0]) + " |",
        "|" + "---|" * len(table[0]),
        *("| " + " | ".join(line) + " |" for line in table[1:]),
        "",
        "Loss and warm start are |WX - W'X|^2 in per cent of pruning everything (means); the certificate is "
        f"the {CERTIFICATE}.",
    ]
    return "\n".join(lines)

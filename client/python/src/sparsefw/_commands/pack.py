"""Commands of the program `sparsefw` that make pruned models smaller; PyTorch is imported when one runs."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from sparsefw._commands import load
from sparsefw._text import printable
from sparsefw.errors import invalid


def _packing() -> Any:
    return load("sparsefw.hf.packing", "hf,pack")


def add_pack(commands: Any) -> None:
    """`sparsefw pack`."""
    parser = commands.add_parser("pack", help="make a pruned model smaller on disk, without loss")
    parser.add_argument("model", metavar="MODEL_DIR", help="folder of a pruned model")
    parser.add_argument("out", metavar="OUT", help="new folder; with --masks-only new file")
    parser.add_argument(
        "--masks-only", action="store_true", help="only masks, one bit a weight, for who has the dense model"
    )
    parser.add_argument("--dense", metavar="DIR", help="with --masks-only: the model that was pruned")
    _add_output_flags(parser)
    parser.set_defaults(run=_pack)


def add_unpack(commands: Any) -> None:
    """`sparsefw unpack`."""
    parser = commands.add_parser("unpack", help="the folder that was packed; or masks, applied to a model")
    parser.add_argument("packed", metavar="PACKED", help="packed folder; with --dense file of masks")
    parser.add_argument("out", metavar="OUT", help="new folder")
    parser.add_argument("--dense", metavar="DIR", help="the model to apply masks to; it is not changed")
    _add_output_flags(parser)
    parser.set_defaults(run=_unpack)


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace OUT where it holds no other files than the new one, or is a file of masks",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one object")


def _pack(arguments: argparse.Namespace) -> int:
    if arguments.masks_only != bool(arguments.dense):
        raise invalid("--masks-only and --dense DIR go together: masks are those of one dense model")
    packing, shown, replace = _packing(), not arguments.quiet, arguments.overwrite
    if arguments.masks_only:
        report = packing.pack_masks(
            arguments.model, arguments.dense, arguments.out, overwrite=replace, progress=shown
        )
    else:
        report = packing.pack(arguments.model, arguments.out, overwrite=replace, progress=shown)
    print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0


def _unpack(arguments: argparse.Namespace) -> int:
    source, shown = Path(arguments.packed), not arguments.quiet
    if not source.exists():
        raise invalid(f"{source}: does not exist")
    if source.is_dir() == bool(arguments.dense):
        rule = "is a folder, which needs no --dense" if source.is_dir() else "is a file of masks: --dense DIR"
        raise invalid(f"{source}: {rule}")
    packing, replace, began = _packing(), arguments.overwrite, time.monotonic()
    if arguments.dense:
        out = packing.apply_masks(source, arguments.dense, arguments.out, overwrite=replace, progress=shown)
    else:
        out = packing.unpack(source, arguments.out, overwrite=replace, progress=shown)
    seconds = time.monotonic() - began
    if arguments.json:
        print(json.dumps({"out": str(out), "seconds": seconds}))
    else:
        what = "every tensor has its digest" if arguments.dense else "every file has its digest"
        print(printable(f"{out}: {what}; {seconds:.1f} s"))
    return 0

"""The folder that a run leaves: weights, tokenizer, sparsefw.json, a section of the model card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sparsefw.errors import invalid
from sparsefw.hf.report import Report

FACTS: Final = "sparsefw.json"
_BEGIN: Final = "<!-- sparsefw begin -->"
_END: Final = "<!-- sparsefw end -->"


def check_out(out: Path) -> None:
    """Raises InvalidArgument where the folder holds what no earlier run has written."""
    if out.exists() and not (out / FACTS).exists() and (not out.is_dir() or any(out.iterdir())):
        raise invalid(f"{out}: exists and is no model that was pruned before; it is not overwritten")


def write_folder(out: Path, report: Report, tokenizer: Any, write: Callable[[Path], None]) -> None:
    """Writes it beside its place and moves it there when it is complete."""
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    write(partial)
    if tokenizer is not None and hasattr(tokenizer, "save_pretrained"):
        tokenizer.save_pretrained(partial)
    (partial / FACTS).write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    card = partial / "README.md"
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    card.write_text(with_section(text, section(report)), encoding="utf-8")
    check_out(out)
    if out.exists():
        shutil.rmtree(out)
    partial.rename(out)


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
        "the share of the mask's loss that no mask can avoid.",
    ]
    return "\n".join(lines)

"""Option names of wanda's main.py, which sparsegpt, OWL, thanos and others share, for `sparsefw prune-model`.

A command line with one of these names is rewritten into ours before it is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparsefw.errors import invalid

# What becomes another option with the same value.
_RENAMED: Final = {
    "--sparsity_ratio": "--sparsity",
    "--nsamples": "--samples",
    "--seqlen": "--sequence-length",
    "--save_model": "--out",
}
# What has no meaning here, and what to do.
_REFUSED: Final = {
    "--cache_dir": "set HF_HOME to the folder of the hub's models",
    "--save": "give --report FILE.json",
    "--save_log": "give --report FILE.json",
    "--use_variant": "leave it out: every row has the exact count already",
    "--eval_zero_shot": "run lm_eval --model hf --model_args pretrained=OUT --tasks ... afterwards",
    "--Lamda": "give --allocation owl for OWL's sparsities",
    "--Hyper_m": "give --allocation owl for OWL's sparsities",
    "--dataset": "give --data FILE.txt: nothing is downloaded",
    "--calib_dataset": "give --data FILE.txt: nothing is downloaded",
}
_OWN: Final = ("--model", "--sparsity_type", "--prune_method")
# Options without a value, here or there.
_SWITCHES: Final = ("--use_variant", "--eval_zero_shot")
_TYPES: Final = ("unstructured", "2:4", "4:8")
# Where "unstructured" compares weights of one row, as wanda's program does, and where of the whole matrix.
_PATTERNS: Final = {
    "wanda": "per-row",
    "ria": "per-row",
    "sparsefw": "per-row",
    "magnitude": "unstructured",
    "sparsegpt": "unstructured",
    "alps": "unstructured",
}


def is_wanda(words: Sequence[str]) -> bool:
    """Whether one of the names is on the command line of prune-model."""
    names = {*_RENAMED, *_REFUSED, *_OWN}
    return any(word.partition("=")[0] in names for word in words)


def translate(words: Sequence[str]) -> list[str]:
    """The same command line with our names. Words that are ours already stay.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): a name that has no meaning here, with what to do.
    """
    found, others = _split(words)
    for name in found:
        if name in _REFUSED:
            raise invalid(f"{name} has no meaning here: {_REFUSED[name]}")
    method = found.pop("--prune_method", None)
    if method is not None and method not in _PATTERNS:
        raise invalid(f"--prune_method must be one of {', '.join(_PATTERNS)}; got {method}")
    kind = found.pop("--sparsity_type", None)
    if kind is not None and kind not in _TYPES:
        raise invalid(f"--sparsity_type must be one of {', '.join(_TYPES)}; got {kind}")
    if "--save_model" not in found and not any(word.partition("=")[0] == "--out" for word in others):
        raise invalid("--save_model DIR is missing: nothing is kept without it")
    if not any(word.partition("=")[0] == "--data" for word in others):
        raise invalid("--data FILE.txt is missing: the calibration text; C4 is not downloaded")
    # Without it the model is among the others, where argparse finds it.
    out = [found.pop("--model")] if "--model" in found else []
    out += ["--method", method] if method else []
    if kind is not None:
        last = _value(others, "--method") or method or "sparsefw"
        out += ["--pattern", _PATTERNS.get(last.lower(), "per-row") if kind == "unstructured" else kind]
    for name, value in found.items():
        out += [_RENAMED[name], value]
    return [*out, *others]


def _value(words: Sequence[str], name: str) -> str | None:
    """The value of an option of ours: the last one counts."""
    value = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def _split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(values of wanda's names, all other words)"""
    names = {*_RENAMED, *_REFUSED, *_OWN}
    found: dict[str, str] = {}
    others: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, given, value = word.partition("=")
        if name not in names:
            others.append(word)
        elif name in _SWITCHES:
            found[name] = ""
        elif given:
            found[name] = value
        else:
            found[name] = next(waiting, "")
            if not found[name]:
                raise invalid(f"{name} needs a value")
    return found, others

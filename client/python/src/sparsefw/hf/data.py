"""Calibration and evaluation text as token ids."""

from __future__ import annotations

import hashlib
import numbers
import operator
import os
import random
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from sparsefw.errors import invalid
from sparsefw.hf.model_files import loading
from sparsefw.hf.values import whole

# One line with the ending of a file of text: nobody calibrates with it.
_LOOKS_LIKE_FILE: Final = re.compile(r".+\.(txt|md|json|jsonl|csv|parquet)")

# Tokens of a sequence: the first predicts the second.
LEAST_LENGTH: Final = 2
# What configurations call the number of positions.
_POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_seq_len")


class _Text(list[int]):
    """Token ids of one text, which is cut into sequences."""

    # The token that the tokenizer puts before a text, and so every sequence begins with: models that are
    # trained with it, as Gemma, predict badly without it.
    begin: int | None = None

    def cut(self, length: int) -> list[list[int]]:
        first, ids = ([], self) if self.begin is None else ([self.begin], self[1:])
        each = length - len(first)
        whole = len(ids) // each
        return [first + ids[index * each : (index + 1) * each] for index in range(whole)] or [self]


def listed(data: Any) -> list[Any]:
    """Texts or token ids as a list: what they come as may be read only once, and says little about them.

    A path is the text of its file, a row that is a dictionary its column "text" (a Dataset of `datasets`).

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): neither; a file that cannot be read.
    """
    if hasattr(data, "tolist"):  # tensors, arrays, Series
        data = data.tolist()
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return [_text_of(data)]
    if isinstance(data, Mapping):
        held = ", ".join(f'"{key}"' for key in list(data)[:5])
        raise invalid(f"data must be texts, or token ids; got a dictionary of {held}: pass one of them")
    if not isinstance(data, Iterable):
        raise invalid(f"data must be texts, or token ids; got {type(data).__name__}")
    items = list(data)
    if items and all(isinstance(item, Mapping) for item in items):
        return _column(items)
    return items


def _text_of(data: str | os.PathLike[str]) -> str:
    """The text, or that of the file of this name."""
    name = os.fspath(data)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise invalid(
            f"data must be texts of valid Unicode; got {reprlib.repr(name)}: {error.reason}"
        ) from None
    # No name of a file is longer or has a line break; a text may.
    path = Path(name) if len(os.fsencode(name)) < 4096 and not set(name) & {"\n", "\0"} else None
    try:
        found = path is not None and path.exists()
    except OSError:  # a part of it is too long for a name
        found = False
    if path is None or not found:
        if not isinstance(data, str) or (path is not None and _LOOKS_LIKE_FILE.fullmatch(name)):
            raise invalid(f"{name}: there is no such file; a text that ends like one goes into a list")
        return name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"{path}: cannot be read as text: {error}") from None


def _column(rows: list[Any]) -> list[Any]:
    if all("text" in row for row in rows):
        return [row["text"] for row in rows]
    held = ", ".join(f'"{key}"' for key in rows[0])
    raise invalid(f'rows of data must have a column "text"; they have {held}: pass data[COLUMN]')


def _ids_of(tokenizer: Any, items: list[Any]) -> _Text | list[list[int]]:
    """The ids: texts make one list; token ids make one, or one a sequence."""
    if not items:
        raise invalid("data must hold at least one text or sequence of token ids")
    items = [_unpacked(item) for item in items]
    if all(isinstance(item, str) for item in items):
        if tokenizer is None:
            raise invalid("texts need a tokenizer; without one data must be token ids")
        ids = tokenizer("\n\n".join(items), verbose=False)["input_ids"]
        text = _Text(int(token) for token in ids)
        # A text of its own may begin with that token's text, as a chat does.
        before = list(tokenizer("", verbose=False)["input_ids"])[:1]
        if before and before == text[:1] == [getattr(tokenizer, "bos_token_id", None)]:
            text.begin = text[0]
        return text
    if all(isinstance(item, numbers.Integral) and not isinstance(item, bool) for item in items):
        return _Text(int(item) for item in items)
    if all(isinstance(item, Iterable) and not isinstance(item, str) for item in items):
        return [_row(index, list(item)) for index, item in enumerate(items)]
    raise invalid("data must be texts, or token ids; got a mixture")


def _unpacked(value: Any) -> Any:
    """Tensors and arrays as lists, or as a number; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _row(index: int, row: list[Any]) -> list[int]:
    """The ids of one sequence, [tokens], or [1, tokens] as tokenizers return it."""
    if len(row) == 1 and isinstance(only := _unpacked(row[0]), Iterable) and not isinstance(only, str):
        row = list(only)
    ids = []
    for token in row:
        try:
            if isinstance(token, bool):
                raise TypeError
            ids.append(operator.index(token))
        except TypeError:
            got = reprlib.repr(token)
            raise invalid(f"data[{index}]: token ids must be integers; got {got}") from None
    return ids


def sequences(
    tokenizer: Any,
    data: Any,
    length: int,
    count: int | None,
    seed: int | None = None,
    vocabulary: int | None = None,
) -> list[Any]:
    """Token ids as tensors [1, tokens].

    Text and one long list of ids are cut into sequences of `length`; of more than `count` of them those
    are taken that are spread evenly, or, with a seed, drawn at random. What is left at the end is used
    only where there is no whole sequence. Where the tokenizer begins a text with a token (bos_token), every
    sequence of a text begins with it. Ids that come in sequences stay in them, cut at `length`.

    Args:
        vocabulary: ids are less; None: it is not known.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no data, fewer than two tokens, wrong types, ids of no token.
    """
    length = whole("sequence_length", length, LEAST_LENGTH)
    count = None if count is None else whole("samples", count, 1)
    ids = _ids_of(tokenizer, listed(data))
    parts = ids.cut(length) if isinstance(ids, _Text) else [item[:length] for item in ids]
    if min(len(part) for part in parts) < 2:
        raise invalid("a sequence must have at least two tokens")
    if vocabulary is not None:
        _check_ids(parts, vocabulary)
    if count is not None and len(parts) > count:
        spread = [index * len(parts) // count for index in range(count)]
        drawn = spread if seed is None else sorted(random.Random(seed).sample(range(len(parts)), count))
        parts = [parts[index] for index in drawn]
    return [torch.tensor([part], dtype=torch.long) for part in parts]


def _check_ids(parts: list[list[int]], vocabulary: int) -> None:
    """Else PyTorch's embedding fails, without a word about the data."""
    for part in parts:
        least, most = min(part), max(part)
        if least < 0 or most >= vocabulary:
            got = least if least < 0 else most
            raise invalid(f"data: token ids must be in [0, {vocabulary}), the model's vocabulary; got {got}")


def hold_back(count: int, few: int) -> tuple[list[int], list[int]]:
    """(indices of sequences that are used, of the `few` that are held back), the latter spread evenly."""
    held = {(2 * index + 1) * count // (2 * few) for index in range(few)}
    return [index for index in range(count) if index not in held], sorted(held)


def tokenizer_of(folder: Path, items: list[Any]) -> Any:
    """The folder's tokenizer where what is `listed` is text; token ids need none.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): it has none that transformers can load.
    """
    if not items or not isinstance(items[0], str):
        return None
    with loading(folder, "tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def digest(samples: Sequence[Any]) -> str:
    """The digest of the token ids, and of where sequences begin."""
    state = hashlib.sha256()
    for sample in samples:
        state.update(sample.shape[1].to_bytes(8, "little"))
        state.update(sample.contiguous().numpy().tobytes())
    return state.hexdigest()


def vocabulary_of(model: Any) -> int | None:
    """How many token ids the model knows; None: it does not say."""
    try:
        embedding = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(embedding, "num_embeddings", None)


def longest(model: Any, asked: int) -> int:
    """Sequences are no longer than the model's positions.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): what is asked for is no length of a sequence.
    """
    asked = whole("sequence_length", asked, LEAST_LENGTH)
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = (getattr(text, name, None) for name in _POSITIONS)
    most = next((int(value) for value in found if value), 0)
    return min(asked, most - _unused(model, most)) if most else asked


def _unused(model: Any, most: int) -> int:
    """Positions that no token has: in the family of RoBERTa they begin after that of padding."""
    for name, module in model.named_modules():
        if (
            isinstance(module, torch.nn.Embedding)
            and "position" in name.rpartition(".")[2]
            and module.num_embeddings == most
            and module.padding_idx is not None
        ):
            return int(module.padding_idx) + 1
    return 0

"""Perplexity of a causal language model."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from sparsefw._inputs.hub import local_folder
from sparsefw.hf.data import listed, longest, sequences, tokenizer_of, vocabulary_of
from sparsefw.hf.model_files import loading
from sparsefw.hf.values import finite

# Positions whose logits are held at a time: [positions, vocabulary] of float32.
_POSITIONS = 256
# Fewer tokens, or a wider margin, are a warning. Both are conventions: no rule gives them.
_FEW = 1000
_WIDE = 1.1


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood of the tokens that have a token before them in their window.

    Attributes:
        value:   the perplexity.
        loss:    its logarithm, nats a token.
        tokens:  predicted.
        windows: sequences without overlap; nothing is known at the start of each.
        length:  tokens of a window.
        losses:  nats a token of every window: two models on the same windows compare by `paired`.
    """

    value: float
    loss: float
    tokens: int
    windows: int
    length: int
    seconds: float
    losses: tuple[float, ...]

    @property
    def margin(self) -> float | None:
        """exp(2 standard errors of the windows' mean loss): the perplexity on such text is about value /
        margin to value * margin. None with a single window, or with losses that are not finite.
        """
        error = _two_errors(self)
        return None if error is None else _exp(error)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no numbers that are not finite: they are None."""
        return dict(finite({**dataclasses.asdict(self), "margin": self.margin}))

    def __str__(self) -> str:
        within = f", {known}" if (known := _range(self)) else ""
        return (
            f"perplexity {self.value:.4f}{within}, over {self.tokens} tokens in {self.windows} windows of "
            f"{self.length}; {self.seconds:.1f} s"
        )


def _two_errors(found: Perplexity) -> float | None:
    """Two standard errors of the logarithm; None: they are not known."""
    if found.windows < 2 or not all(map(math.isfinite, found.losses)):
        return None
    return 2 * statistics.stdev(found.losses) / math.sqrt(found.windows)


def _range(found: Perplexity) -> str:
    """The errors in words; "": they are not known."""
    error = _two_errors(found)
    if error is None:
        return ""
    return f"± 2 standard errors: {_exp(found.loss - error):.4g} to {_exp(found.loss + error):.4g}"


def _exp(loss: float) -> float:
    """Without an error where a float64 cannot hold it, as of a model that is broken."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def summed_loss(logits: Any, ids: Any) -> float:
    """The negative log-likelihood of a window's tokens but the first, nats, summed.

    Args:
        logits: [1, tokens, vocabulary].
        ids:    [1, tokens].
    """
    total = 0.0
    for start in range(0, logits.shape[1] - 1, _POSITIONS):
        part = logits[0, start : min(start + _POSITIONS, logits.shape[1] - 1)].float()
        wanted = ids[0, start + 1 : start + 1 + len(part)]
        total += float(torch.nn.functional.cross_entropy(part, wanted, reduction="sum"))
    return total


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without dropout; afterwards every module is as before: some may be frozen while others are trained."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])  # what its own `train` does besides
        for module, training in modes:
            module.training = training


def evaluate_perplexity(
    model: Any,
    tokenizer: Any = None,
    data: Any = (),
    *,
    sequence_length: int = 2048,
    samples: int | None = None,
    progress: bool = False,
) -> Perplexity:
    """Perplexity over text, in windows of `sequence_length` tokens (fewer where the model has fewer
    positions).

    Args:
        model:   a causal language model, a folder of one, or its name on the Hugging Face hub
                 ("ORGANISATION/NAME"), loaded in the dtype that it has.
        tokenizer: for data that is text; None with a folder: the folder's.
        data:    as in prune_model: texts, which are joined by blank lines, a file of text, or token ids.
        samples: as many windows, spread evenly; None: all.

    A warning says where fewer than 1000 tokens, or a margin above 10 %, make the value uncertain, and where
    losses are not finite.
    """
    data = listed(data)
    folder = local_folder(model)
    if folder is not None:
        tokenizer = tokenizer or tokenizer_of(folder, data)
        with loading(folder, "model"):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", trust_remote_code=False
            )
    length, known = longest(model, sequence_length), vocabulary_of(model)
    windows = sequences(tokenizer, data, length, samples, vocabulary=known)
    started, total, tokens = time.monotonic(), 0.0, 0
    losses = []
    shown: Any = windows
    if progress:
        from tqdm.auto import tqdm

        shown = tqdm(windows, desc="perplexity", unit="window")
    with evaluating(model), torch.no_grad():
        for window in shown:
            ids = window.to(model.device)
            summed, count = summed_loss(model(input_ids=ids, use_cache=False).logits, ids), ids.shape[1] - 1
            total, tokens = total + summed, tokens + count
            losses.append(summed / count)
            if progress:
                shown.set_postfix_str(f"{_exp(total / tokens):.3f}", refresh=False)
    loss = total / tokens
    length = max(int(window.shape[1]) for window in windows)
    seconds = time.monotonic() - started
    found = Perplexity(_exp(loss), loss, tokens, len(windows), length, seconds, tuple(losses))
    if doubt := _doubt(found):
        warnings.warn(doubt, stacklevel=2)
    return found


def _doubt(found: Perplexity) -> str:
    """What makes the value uncertain, in words; "": nothing that is known."""
    few = f"{found.tokens} tokens only" if found.tokens < _FEW else f"{found.tokens} tokens"
    what = f"perplexity {found.value:.4g} over {few}"
    if bad := sum(not math.isfinite(loss) for loss in found.losses):
        share = f"{bad} of {found.windows} windows"
        return f"perplexity {found.value:.4g}: losses are not finite in {share}; look at the weights"
    if found.margin is None:
        return f"{what}: one window does not tell how uncertain that is; take more text"
    if found.margin <= _WIDE and found.tokens >= _FEW:
        return ""
    return f"{what} ({_range(found)}); take more text"

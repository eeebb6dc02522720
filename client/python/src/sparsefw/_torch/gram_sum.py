"""Gram matrices of what layers see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch

from sparsefw.errors import invalid

# Tokens of one product. Fewer lose less to float32, more are faster.
_TOKENS: Final = 1024
# Rows of the sum that are handled at a time, from the diagonal on. On a CPU, the panels of a product are
# half of it and stay in the caches; a device computes the whole product.
_PANEL: Final = 256


@contextlib.contextmanager
def exact_products(device: Any = "cpu") -> Iterator[None]:
    """Float32 products with float32 operands on this device: no TF32, no bfloat16, no autocast."""
    kind = torch.device(device).type
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_precision())
        # Batches that come from within an `autocast` leave it on here.
        if torch.amp.is_autocast_available(kind):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Computes products in full precision while it is open; then all is as it was."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    if not all(hasattr(backend, "fp32_precision") for backend in backends):  # PyTorch before 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # The older functions raise where somebody has used these.
    chosen = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in zip(backends, chosen, strict=True):
            # It may come from torch.backends.fp32_precision, and must follow that again.
            backend.fp32_precision = "none"
            if backend.fp32_precision != precision:
                backend.fp32_precision = precision


class GramSum:
    """G = x.T @ x summed over batches x [tokens, d_in], where the activations are.

    Products of up to 1024 tokens are float32, their sum is float64. A CPU computes about half of a product,
    which is symmetric. The same batches in the same order give the same bits, on the same machine with as
    many threads.

    Attributes:
        d_in:   width of a token.
        tokens: how many were summed.
    """

    def __init__(self, d_in: int, device: Any = None) -> None:
        self.d_in = d_in
        self.tokens = 0
        # Apple's devices have no float64.
        place = torch.device("cpu" if torch.device(device or "cpu").type == "mps" else device or "cpu")
        self._height = _PANEL if torch.device(device or "cpu").type == "cpu" else d_in
        # The upper triangle is right; round_to_float32 makes the rest.
        self._whole = False
        self._sum = torch.zeros(d_in, d_in, dtype=torch.float64, device=place)

    def add(self, inputs: Any) -> None:
        """Adds tokens: [tokens, d_in] or [..., d_in], of any floating dtype."""
        if not isinstance(inputs, torch.Tensor) or not inputs.is_floating_point() or not inputs.dim():
            got = (
                f"{inputs.dtype} {list(inputs.shape)}"
                if isinstance(inputs, torch.Tensor)
                else type(inputs).__name__
            )
            raise invalid(
                f"inputs must be a tensor of floating-point numbers [..., tokens, {self.d_in}]; got {got}"
            )
        if inputs.shape[-1] != self.d_in:
            turned = inputs.dim() == 2 and inputs.shape[0] == self.d_in
            hint = ", which looks transposed: pass x.T" if turned else ""
            raise invalid(f"inputs must be [..., tokens, {self.d_in}]; got {list(inputs.shape)}{hint}")
        self._whole = False
        tokens = inputs.detach().reshape(-1, self.d_in)
        with torch.no_grad(), exact_products(tokens.device):
            for part in tokens.split(_TOKENS):
                values = part.to(torch.float32)
                for start, end in self._panels(self._height):
                    product = values[:, start:end].T @ values[:, start:]
                    self._sum[start:end, start:] += product.to(self._sum.device)
        self.tokens += len(tokens)

    def round_to_float32(self) -> None:
        """Makes the sum whole and symmetric, and rounds it to float32. Rounded sums can be sent as float32,
        and merged strip by strip of rows: the whole stays symmetric to the bit. Products are float32, so the
        rounding adds no larger error than they have.
        """
        for start, end in self._panels():
            panel = self._panel(start, end)
            self._sum[start:end, start:] = panel
            self._sum[start:, start:end] = panel.T
        self._whole = True

    def rows(self, start: int, end: int) -> Any:
        """Some rows of a sum that `round_to_float32` has made whole: float32 [end - start, d_in].

        Raises:
            InvalidArgument (CLIENT_ARGUMENT): it has not, or tokens were added since.
        """
        if not self._whole:
            raise invalid("rows need a sum that is whole: call round_to_float32 after the last batch")
        return self._sum[start:end].float()

    def merge(self, other: GramSum) -> None:
        """Adds the sum of other tokens."""
        if other.d_in != self.d_in:
            raise invalid(f"a sum of {self.d_in} features cannot take one of {other.d_in}")
        self._sum += other._sum.to(self._sum.device)
        self._whole = self._whole and other._whole
        self.tokens += other.tokens

    @property
    def is_zero(self) -> bool:
        """No token, or none that says anything."""
        return not bool(self._sum.diagonal().any())

    def matrix(self) -> Any:
        """Float32 [d_in, d_in] on the CPU, symmetric to the bit."""
        whole = torch.empty(self.d_in, self.d_in, dtype=torch.float32)
        for start, end in self._panels():
            panel = self._panel(start, end).cpu()
            whole[start:end, start:] = panel
            whole[start:, start:end] = panel.T
        return whole

    def _panels(self, height: int = _PANEL) -> Iterator[tuple[int, int]]:
        for start in range(0, self.d_in, height):
            yield start, min(start + height, self.d_in)

    def _panel(self, start: int, end: int) -> Any:
        """Rows from the diagonal on, float32."""
        panel = self._sum[start:end, start:].float()
        square = panel[:, : end - start]  # its two triangles may differ in their last bits
        square.copy_(square.triu() + square.triu(1).T)
        return panel

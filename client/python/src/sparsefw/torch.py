"""Layers of PyTorch models, pruned where they are.

from sparsefw.torch import prune_linear, hold_masks

result = prune_linear(layer, inputs, sparsity=0.6, client=client)    # in place
with hold_masks(model):                                              # zeros stay zeros
    train(model)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Unpack

try:
    import torch
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "PyTorch is not installed: pip install 'sparsefw[hf]'", name="torch"
    ) from _error

from sparsefw._rpc.sync import run
from sparsefw.client import Client, connect
from sparsefw.errors import Error, FailedPrecondition, InvalidArgument, NotFound, invalid
from sparsefw.handles import Job, Tensor
from sparsefw.results import Event, Result
from sparsefw.spec import JobOptions, make_spec, updates_weights

# Tokens of one product. Fewer lose less to float32, more are faster.
_TOKENS: Final = 1024
# Rows of the sum that are computed at a time, from the diagonal on: half of a product, in the caches.
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

    Products of up to 1024 tokens are float32, their sum is float64. Only the upper triangle is computed. The
    same batches in the same order give the same bits on the same machine with as many threads.

    Attributes:
        d_in:   width of a token.
        tokens: how many were summed.
    """

    def __init__(self, d_in: int, device: Any = None) -> None:
        self.d_in = d_in
        self.tokens = 0
        # Apple's devices have no float64.
        place = torch.device("cpu" if torch.device(device or "cpu").type == "mps" else device or "cpu")
        # Right of the diagonal, and a few columns left of it; round_to_float32 makes the rest.
        self._sum = torch.zeros(d_in, d_in, dtype=torch.float64, device=place)

    def add(self, inputs: Any) -> None:
        """Adds tokens: [tokens, d_in] or [..., d_in], of any floating dtype."""
        if inputs.shape[-1] != self.d_in:
            turned = inputs.dim() == 2 and inputs.shape[0] == self.d_in
            hint = ", which looks transposed: pass x.T" if turned else ""
            raise invalid(f"inputs must be [..., tokens, {self.d_in}]; got {list(inputs.shape)}{hint}")
        tokens = inputs.detach().reshape(-1, self.d_in)
        with torch.no_grad(), exact_products(tokens.device):
            for part in tokens.split(_TOKENS):
                values = part.to(torch.float32)
                for start, end in self._panels():
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

    def rows(self, start: int, end: int) -> Any:
        """Some rows of a sum that `round_to_float32` has made whole: float32 [end - start, d_in]."""
        return self._sum[start:end].float()

    def merge(self, other: GramSum) -> None:
        """Adds the sum of other tokens."""
        if other.d_in != self.d_in:
            raise invalid(f"a sum of {self.d_in} features cannot take one of {other.d_in}")
        self._sum += other._sum.to(self._sum.device)
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

    def _panels(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.d_in, _PANEL):
            yield start, min(start + _PANEL, self.d_in)

    def _panel(self, start: int, end: int) -> Any:
        """Rows from the diagonal on, float32."""
        panel = self._sum[start:end, start:].float()
        square = panel[:, : end - start]  # its two triangles may differ in their last bits
        square.copy_(square.triu() + square.triu(1).T)
        return panel


def is_conv1d(module: Any) -> bool:
    """The Conv1D of Hugging Face's GPT-2: a linear layer whose weight is [d_in, d_out]."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and module.weight.dim() == 2


def weight_of(layer: Any) -> Any:
    """The weight of a linear layer as [d_out, d_in]: the parameter itself or a view of it."""
    if isinstance(layer, torch.nn.Linear):
        return layer.weight.detach()
    if is_conv1d(layer):
        return layer.weight.detach().T
    kind = type(layer).__name__
    raise invalid(f"a layer must be a torch.nn.Linear or a Conv1D of transformers; got {kind}")


def prune_linear(
    layer: Any,
    inputs: Any,
    *,
    client: Client | None = None,
    server: str = "auto",
    progress: bool | Callable[[Event], None] = False,
    request_id: str | None = None,
    **options: Unpack[JobOptions],
) -> Result:
    """Prunes a linear layer in place; its bias, dtype and device stay.

    Args:
        layer:    torch.nn.Linear, or the Conv1D of transformers' GPT-2.
        inputs:   what the layer sees: a tensor [..., d_in], an iterable of such tensors, or a GramSum. The
                  Gram matrix is summed on their device.
        client:   of `sparsefw.connect`; None: one is made for this call, to `server`.
        request_id: makes it idempotent across processes: after Ctrl-C or a lost connection the same call goes
                  on with the same uploads and job. One that has returned, or whose job has failed, leaves
                  nothing behind: then the same id begins anew. At most 100 characters.
        options:  see sparsefw.JobOptions. Where they update weights (sparsegpt, alps, reconstruct, joint)
                  the layer gets the new ones.

    Returns:
        The result: `result.losses`, `result.certificate`, `result.torch_mask()`.
    """
    weight = weight_of(layer)
    wanted = make_spec(options)
    if updates_weights(wanted) and not wanted.return_pruned_weight:
        raise invalid("return_weight must not be False: the layer needs the weights that the job makes")
    gram = inputs if isinstance(inputs, GramSum) else _sum_of(inputs, weight.shape[1])
    if gram.tokens == 0:
        raise invalid("the Gram matrix has no tokens: pass inputs through the layer before it is pruned")
    if gram.d_in != weight.shape[1]:
        raise invalid(f"the layer has {weight.shape[1]} inputs; the Gram matrix is of {gram.d_in}")
    with contextlib.ExitStack() as stack:
        if client is None:
            client = stack.enter_context(connect(server))
        if request_id is None:
            tensor = stack.enter_context(client.upload(gram.matrix(), "gram", tokens=gram.tokens))
            result = client.prune(weight, tensor, progress=progress, **options)
        else:
            result = _prune_named(client, weight, gram, request_id, progress, options)
    apply_result(weight, result)
    return result


def _prune_named(
    client: Client,
    weight: Any,
    gram: GramSum,
    request_id: str,
    progress: bool | Callable[[Event], None],
    options: JobOptions,
) -> Result:
    """Goes on with what an interrupted call of this id has left. Nothing stays once the result is here, or
    once there will be none: the id would lead to that job, and with other inputs be refused.
    """
    made: list[Tensor | Job] = []
    try:
        made.append(client.upload(weight, "weight", request_id=f"{request_id}/weight"))
        name = f"{request_id}/gram"
        made.append(client.upload(gram.matrix(), "gram", tokens=gram.tokens, request_id=name))
        job = client.submit(*made, request_id=request_id, **options)
        # The job goes first: it must not be there without its inputs.
        made.insert(0, job)
        result = job.result(progress)
    except Error as error:
        if _is_final(error, made):
            run(client.core.give_back([one.name for one in made]))
        raise
    for one in made:
        with contextlib.suppress(Error):  # the result is here
            client.delete(one)
    return result


def _is_final(error: Error, made: Sequence[Tensor | Job]) -> bool:
    """The same call cannot go on with what was made: the job has ended without a result that can still be
    fetched, or was refused for its inputs or options.
    """
    if made and isinstance(made[0], Job):
        job = made[0]
        none = job.state == "FAILED" or (job.state == "CANCELLED" and not job.message.HasField("result"))
        return none or isinstance(error, NotFound)
    refused = isinstance(error, InvalidArgument | FailedPrecondition)
    # These may be the inputs of a job with other options that is there.
    return refused and error.reason != "REQUEST_ID_REUSED"


def _sum_of(inputs: Any, d_in: int) -> GramSum:
    batches: Iterable[Any] = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    gram = None
    for batch in batches:
        if gram is None:
            gram = GramSum(d_in, batch.device)
        gram.add(batch)
    if gram is None:
        raise invalid("there must be at least one batch of inputs")
    return gram


def apply_result(weight: Any, result: Result) -> None:
    """Writes new weights, or zeros where the mask removes, into [d_out, d_in] in place.

    Raises:
        FailedPrecondition (CLIENT_ARGUMENT): the result's losses are of new weights that it does not have.
    """
    result.check_weight()
    with torch.no_grad():
        if result.has_weight:
            weight.copy_(result.torch_weight())
        else:
            weight.masked_fill_(~result.torch_mask().to(weight.device), 0)


class HeldMasks:
    """Masks that are held; see `hold_masks`. A context manager; `remove` clears once more and lets go.

    Attributes:
        names: of the parameters, as in `model.named_parameters()`.
    """

    def __init__(self, model: Any, removed: Mapping[str, Any]) -> None:
        """`removed`: by parameter, bool of its shape and device, True where it stays 0."""
        self.names = tuple(removed)
        self._handles: list[Any] = []
        self._clear: list[Callable[[], None]] = []
        parameters = dict(model.named_parameters())
        zeros_of = {id(parameters[name]): zeros for name, zeros in removed.items()}
        for name, zeros in removed.items():
            # The optimizer's moments never learn of removed weights.
            if parameters[name].requires_grad:
                self._handles.append(hold_zeros(parameters[name], zeros))
        owners: dict[str, dict[str, Any]] = {}
        # Also of what several modules share: each of them may use it first.
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if (found := zeros_of.get(id(parameter))) is not None:
                module, _, attribute = name.rpartition(".")
                owners.setdefault(module, {})[attribute] = found
        for path, masks in owners.items():
            module = model.get_submodule(path)
            # Whatever an optimizer did: before use, and before anything is saved, they are zeros again.
            clear = _zeroing(masks)
            self._handles.append(module.register_forward_pre_hook(clear))
            self._handles.append(module.register_state_dict_pre_hook(clear))
            self._clear.append(functools.partial(clear, module))
        # Weights are not always used by their module's own forward function (MultiheadAttention's out_proj).
        self._handles.append(model.register_forward_pre_hook(lambda *_: self._clear_all()))

    def remove(self) -> None:
        """Ends it, with removed weights at zero. Safe to call again: then it does nothing."""
        # After the last step of an optimizer nothing may have used or saved the weights.
        self._clear_all()
        self._clear.clear()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _clear_all(self) -> None:
        for clear in self._clear:
            clear()

    def __enter__(self) -> HeldMasks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def hold_zeros(parameter: Any, zeros: Any) -> Any:
    """Clears the gradient where `zeros` is True: an optimizer without momentum from before and without
    weight decay then never moves these weights. Returns the hook's handle.
    """
    return parameter.register_hook(lambda gradient: gradient.masked_fill(zeros.to(gradient.device), 0))


def _zeroing(masks: Mapping[str, Any]) -> Callable[..., None]:
    def clear(module: Any, *_: Any) -> None:
        for attribute, zeros in masks.items():
            parameter = getattr(module, attribute)
            # Through .data: autograd must not take it for a change, since the values are zeros already
            # when a backward pass needs them.
            parameter.data.masked_fill_(zeros.to(parameter.device), 0)

    return clear


def hold_masks(
    model: Any, masks: Mapping[str, Any] | None = None, *, least_sparsity: float = 0.05
) -> HeldMasks:
    """Keeps pruned weights at zero while a model is trained, whatever the optimizer.

    Nothing is added to the model's parameters, buffers or state_dict: hooks clear the gradient of removed
    weights, and the weights themselves before every use, before they are saved and when it ends. In
    between, an optimizer with older moments may have moved them. `save_pretrained` writes the same folder
    as without it.

    Args:
        model: any torch.nn.Module.
        masks: by parameter name, bool of the parameter's shape, True = keep. None: what is zero now, in
               weight matrices (also fused experts) with at least `least_sparsity` zeros, embeddings left
               out.

    >>> with hold_masks(model):                     # doctest: +SKIP
    ...     optimizer.step()
    """
    parameters = dict(model.named_parameters())
    removed: dict[str, Any] = {}
    if masks is not None:
        for name, mask in masks.items():
            if name not in parameters or tuple(mask.shape) != tuple(parameters[name].shape):
                raise invalid(f'there is no parameter "{name}" of shape {list(mask.shape)}')
            removed[name] = ~mask.to(parameters[name].device, torch.bool)
        return HeldMasks(model, removed)
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters()
    }
    for name, parameter in parameters.items():
        if parameter.dim() not in (2, 3) or id(parameter) in embeddings:
            continue
        zeros = parameter.detach() == 0
        count = int(zeros.sum())
        # A matrix of zeros was not pruned: it waits for its first step, as LoRA's do.
        if least_sparsity * parameter.numel() <= count < parameter.numel() and count:
            removed[name] = zeros
    if not removed:
        raise invalid(f"no weight matrix has at least {least_sparsity:.0%} zeros: there is nothing to hold")
    return HeldMasks(model, removed)

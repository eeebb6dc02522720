"""Layers of PyTorch models, pruned where they are.

from sparsefw.torch import prune_linear, hold_masks

result = prune_linear(layer, inputs, sparsity=0.6, client=client)    # in place
with hold_masks(model):                                              # zeros stay zeros
    train(model)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

try:
    import torch
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "PyTorch is not installed: pip install 'sparsefw[hf]'", name="torch"
    ) from _error

from sparsefw._rpc.session import chosen_request_id
from sparsefw._rpc.sync import run
from sparsefw._torch.gram_sum import GramSum, exact_products
from sparsefw.client import Client, connect
from sparsefw.errors import Error, FailedPrecondition, InvalidArgument, NotFound, invalid
from sparsefw.handles import Job, Tensor
from sparsefw.results import Event, Result
from sparsefw.spec import JobOptions, make_spec, updates_weights

__all__ = [
    "GramSum",
    "HeldMasks",
    "apply_result",
    "exact_products",
    "hold_masks",
    "hold_zeros",
    "is_conv1d",
    "prune_linear",
    "weight_of",
]


def is_conv1d(module: Any) -> bool:
    """The Conv1D of Hugging Face's GPT-2: a linear layer whose weight is [d_in, d_out]."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and module.weight.dim() == 2


def weight_of(layer: Any) -> Any:
    """The weight of a linear layer as [d_out, d_in]: the parameter itself or a view of it."""
    if isinstance(layer, torch.nn.Linear) or is_conv1d(layer):
        if not isinstance(layer.weight, torch.nn.Parameter):  # computed again in every forward pass
            raise invalid(
                "the layer's weight must be a parameter; got one that is computed: remove its "
                "parametrization first (torch.nn.utils.prune.remove, remove_parametrizations)"
            )
        return layer.weight.detach() if isinstance(layer, torch.nn.Linear) else layer.weight.detach().T
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
                  nothing behind: then the same id begins anew. At most 116 bytes in UTF-8.
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
    chosen_request_id(request_id)  # the ids below are texts, whatever it is
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
    # What is no tensor and no iterable is named as a batch.
    one = isinstance(inputs, torch.Tensor) or not isinstance(inputs, Iterable)
    batches: Iterable[Any] = [inputs] if one else inputs
    gram = None
    for batch in batches:
        if not isinstance(batch, torch.Tensor):
            raise invalid(
                f"inputs must be tensors [..., {d_in}], one or several, or a GramSum; got "
                f"{type(batch).__name__}: pass torch.as_tensor(x)"
            )
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
        masks: by parameter name, bool of the parameter's shape, True = keep; a tied parameter may have any
               of its names. None: what is zero now, in weight matrices (also fused experts) with at least
               `least_sparsity` zeros. Embeddings are left out, and so are matrices that are zero as a whole:
               these were not pruned, but wait for their first step, as LoRA's do. Masks hold them, too.

    >>> with hold_masks(model):                     # doctest: +SKIP
    ...     optimizer.step()
    """
    if masks is not None:
        return HeldMasks(model, _removed(model, masks))
    removed: dict[str, Any] = {}
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters()
    }
    for name, parameter in model.named_parameters():
        if parameter.dim() not in (2, 3) or id(parameter) in embeddings:
            continue
        zeros = parameter.detach() == 0
        count = int(zeros.sum())
        # A matrix of zeros was not pruned.
        if least_sparsity * parameter.numel() <= count < parameter.numel() and count:
            removed[name] = zeros
    if not removed:
        raise invalid(f"no weight matrix has at least {least_sparsity:.0%} zeros: there is nothing to hold")
    return HeldMasks(model, removed)


def _removed(model: Any, masks: Mapping[str, Any]) -> dict[str, Any]:
    """What masks by any name of a parameter remove, by its first name."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    removed: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, mask in ((name, torch.as_tensor(mask)) for name, mask in masks.items()):
        if name not in parameters or tuple(mask.shape) != tuple(parameters[name].shape):
            raise invalid(f'there is no parameter "{name}" of shape {list(mask.shape)}')
        own = first[id(parameters[name])]
        zeros = ~mask.to(parameters[name].device, torch.bool)
        if own in removed and not torch.equal(removed[own], zeros):
            raise invalid(f'"{given[own]}" and "{name}" are one parameter; their masks differ')
        removed[own], given[own] = zeros, name
    return removed

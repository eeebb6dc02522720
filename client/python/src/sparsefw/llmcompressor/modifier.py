"""The modifier: llm-compressor runs the samples, a server prunes, the weights are written where they are."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from compressed_tensors.offload import align_module_device, update_offload_parameter
from compressed_tensors.utils import match_named_modules, match_targets
from llmcompressor.core import Event, State
from llmcompressor.modifiers import Modifier, ModifierFactory
from loguru import logger
from pydantic import ConfigDict, Field, PrivateAttr

import sparsefw
from sparsefw.errors import invalid
from sparsefw.hf.layout import Matrix, is_router
from sparsefw.hf.pipeline import SPLIT_ABOVE
from sparsefw.hf.pools.servers import Servers
from sparsefw.hf.pools.tasks import Solved, Task, task_of
from sparsefw.hf.report import Report
from sparsefw.llmcompressor.arguments import options_of
from sparsefw.llmcompressor.sums import Sums
from sparsefw.torch import GramSum, is_conv1d, weight_of


def _is_linear(module: Any) -> bool:
    return isinstance(module, torch.nn.Linear) or is_conv1d(module)


class SparseFWModifier(Modifier):  # type: ignore[misc]
    """Prunes linear layers on a SparseFW server, within llm-compressor's `oneshot`.

    Of every decoder layer, after its samples: Gram matrices of the inputs go to the server, a job for every
    linear layer runs there, and the outcome is written into the weight. Embeddings, the output head and what
    chooses experts stay dense, whatever the targets are.

    Args:
        sparsity: share to remove, [0, 1]. With "N:M" it may be left out, or must be N / M.
        mask_structure: "0:0" or "per-row": the share of every row; "unstructured": of the whole matrix;
            "N:M": N of every M consecutive inputs are removed.
        targets: names or classes of modules, "re:" before a regular expression; of other modules the linear
            layers inside.
        ignore:  likewise; these stay dense.
        server:  "auto" starts one for this run; "host:port", or a list. SPARSEFW_TOKEN and SPARSEFW_TLS_CA
            are read from the environment.
        split_above: as of prune_model.
        others:  of sparsefw.JobOptions: preset, method, alpha, iterations, swaps, reconstruct, joint, ...

    Attributes:
        report: sparsefw.hf.Report of the last run: `print(modifier.report)`.

    Raises:
        ValueError: arguments that no job would take, at once; oneshot without samples or layers.
        Error: of a server; the message names the layer.
    """

    model_config = ConfigDict(extra="allow")

    requires_calibration_data: bool = True
    sparsity: float | None = None
    mask_structure: str = "0:0"
    targets: str | list[str] = Field(default_factory=lambda: ["Linear"])
    ignore: str | list[str] = Field(default_factory=list)
    server: str | list[str] = "auto"
    split_above: int = SPLIT_ABOVE

    _matrices: dict[Any, Matrix] = PrivateAttr(default_factory=dict)
    _state: Any = PrivateAttr(default=None)
    _sums: Any = PrivateAttr(default=None)
    _pool: Any = PrivateAttr(default=None)
    _records: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _dense: list[str] = PrivateAttr(default_factory=list)
    _versions: dict[str, Any] = PrivateAttr(default_factory=dict)
    _began: float = PrivateAttr(default=0.0)
    _report: Any = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Checks the arguments, before a model is read."""
        super().model_post_init(context)
        self.targets = [self.targets] if isinstance(self.targets, str) else self.targets
        self.ignore = [self.ignore] if isinstance(self.ignore, str) else self.ignore
        self._options()

    def _options(self) -> dict[str, Any]:
        return options_of(self.sparsity, self.mask_structure, self.model_extra or {})

    @property
    def report(self) -> Report:
        """What was pruned; after `oneshot`."""
        if self._report is None:
            raise invalid("the modifier has no report before oneshot has ended")
        return self._report  # type: ignore[no-any-return]

    def on_initialize(self, state: State, **_: Any) -> bool:
        """Finds the layers."""
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        if shared and torch.distributed.get_world_size() > 1:
            raise invalid("SparseFWModifier sums the samples of one process: start oneshot without torchrun")
        if state.data.calib is None:
            raise invalid("SparseFWModifier needs samples: give oneshot a dataset")
        if self._pool is not None:  # an earlier oneshot ended with an error
            self._close(sparsefw.Error("another run begins"))
        self._state, self._began = state, time.monotonic()
        self._records, self._report = [], None
        self._matrices, self._dense = {}, []
        model = state.model
        ends = (model.get_input_embeddings(), model.get_output_embeddings())
        for name, module in self._linear_layers(model).items():
            kept = any(module is end for end in ends) or is_router(model, name, module)
            if kept or match_targets(name, module, self.ignore):
                self._dense.append(f"{name}.weight")
            else:
                rows, columns = weight_of(module).shape
                matrix = Matrix(f"{name}.weight", name, "weight", rows, columns, is_conv1d(module))
                self._matrices[module] = matrix
        if not self._matrices:
            raise invalid(f"no linear layer matches targets {self.targets} and not ignore {self.ignore}")
        return True

    def _linear_layers(self, model: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, module in match_named_modules(model, self.targets):
            inner = {name: module} if _is_linear(module) else {}
            for path, part in module.named_modules() if not inner else ():
                if _is_linear(part):
                    inner[f"{name}.{path}".strip(".")] = part
            found.update(inner)
        return found

    def on_calibration_start(self, state: State, event: Event, **_: Any) -> None:
        """Opens the way to the server, and takes the inputs of every layer from now on."""
        servers = [self.server] if isinstance(self.server, str) else self.server
        self._pool = Servers(servers, f"oneshot-{uuid.uuid4().hex[:12]}", self.split_above, lasting=False)
        try:
            self._versions = {
                "sparsefw": sparsefw.__version__,
                "server": self._pool.version,
                "torch": torch.__version__,
                "transformers": version("transformers"),
                "llmcompressor": version("llmcompressor"),
            }
        except BaseException as error:
            self._close(error)
            raise
        self._sums = Sums(len(state.data.calib))
        for module in self._matrices:
            self.register_hook(module, self._take, "forward_pre", with_kwargs=True)

    def _take(self, module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._sums is None:  # a hook that an error has left
            return
        inputs = args[0] if args else named["input"]
        self._sums.add(module, self._state.current_batch_idx, inputs)

    def on_sequential_epoch_end(self, state: State, event: Event, modules: Sequence[Any], **_: Any) -> None:
        """Prunes the layers among these modules, whose inputs are complete."""
        own = [module for module in modules if module in self._matrices]
        try:
            if own:
                self._prune(own)
        except BaseException as error:
            self._close(error)
            raise
        for module in own:
            del self._matrices[module]

    def _prune(self, modules: Sequence[Any]) -> None:
        tokens: dict[str, int] = {}
        tasks = [self._task(module, tokens) for module in modules]
        self._sums.clear()
        solved = self._pool.solve(tasks, lambda *_: None)
        for module, task, outcome in zip(modules, tasks, solved, strict=True):
            self._write(module, outcome)
            self._records.append({**outcome.record, "tokens": tokens[task.gram]})
            row = Report({}, {}, self._records[-1:], [], 0.0).rows()[0]
            note = f" ({row['note']})" if row["note"] else ""
            logger.info(
                f"{row['name']}: {row['sparsity']:.2%} removed, loss {row['loss']:.3%} of removing all{note}"
            )
        self._pool.drop_grams()

    def _task(self, module: Any, tokens: dict[str, int]) -> Task:
        """A layer's job; `tokens` gets those of its Gram matrix, which is sent to the server once."""
        first = self._sums.first(module)
        key = self._matrices[module if first is None else first].name
        if key not in tokens:
            gram = GramSum(self._matrices[module].columns) if first is None else self._sums.total(first)
            tokens[key] = 0 if gram.is_zero else gram.tokens
            matrix = torch.eye(gram.d_in, dtype=torch.float32) if gram.is_zero else gram.matrix()
            self._pool.add_gram(key, matrix, tokens[key])
        with align_module_device(module):
            weight = weight_of(module).cpu().contiguous()
        return task_of(self._matrices[module], weight, key, self._options(), tokens[key])

    def _write(self, module: Any, outcome: Solved) -> None:
        with torch.no_grad(), align_module_device(module):
            weight = weight_of(module)
            if outcome.weight is not None:
                new = outcome.weight.to(weight.device, weight.dtype)
            else:
                new = weight.masked_fill(~outcome.mask.to(weight.device), 0)
            update_offload_parameter(module, "weight", new.T if outcome.matrix.transposed else new)

    def on_calibration_end(self, state: State, event: Event, **_: Any) -> None:
        """Makes the report."""
        self._close(None)
        left = [matrix.name for matrix in self._matrices.values()]
        if left:
            raise invalid(f"oneshot never ended the samples of {left[0]}, which stays dense")
        settings = {**self.model_dump(), "samples": len(state.data.calib)}
        seconds = time.monotonic() - self._began
        self._report = Report(settings, self._versions, self._records, self._dense, seconds)
        removed = f"{self._report.sparsity:.3%} of {len(self._records)} matrices"
        logger.info(f"removed {removed} in {seconds:.1f} s")

    def _close(self, error: BaseException | None) -> None:
        self.remove_hooks()
        pool, self._pool, self._sums = self._pool, None, None
        if pool is not None:
            with contextlib.suppress(sparsefw.Error) if error else contextlib.nullcontext():
                pool.__exit__(type(error) if error else None)

    def on_finalize(self, state: State, **_: Any) -> bool:
        """Lets go of the model."""
        self._close(None)
        self._state = None
        return True


ModifierFactory.register(SparseFWModifier.__name__, SparseFWModifier)

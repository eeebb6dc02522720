"""A model folder, read and written tensor by tensor: nothing needs all of it in memory."""

from __future__ import annotations

import collections
import contextlib
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    convert_and_load_state_dict_in_model,
    rename_source_key,
    revert_weight_conversion,
)
from transformers.modeling_utils import LoadStateDictConfig

from sparsefw._files import read_header
from sparsefw.errors import invalid
from sparsefw.hf.model_files import INDEX, SINGLE, loading, model_files, weight_map
from sparsefw.hf.state import file_digest

# These files of a model folder are weights in another form; they would not be pruned.
_OTHER_WEIGHTS: Final = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")


class Checkpoint:
    """The safetensors files of a model folder, and how their tensors become parameters of a model.

    Names and layouts on disk may differ from those of the model (experts one by one, another prefix);
    transformers' own tables say how.
    """

    def __init__(self, folder: Path, model: Any) -> None:
        """`model`: on the device "meta"."""
        self.folder = folder
        self._model = model
        named = weight_map(folder)
        if named is not None:
            self._files = named
        else:
            with safe_open(folder / SINGLE, "pt") as file:
                self._files = dict.fromkeys(file.keys(), folder / SINGLE)
        # An index beside the one file names shards that are not read, nor copied.
        self._unread = {INDEX} if named is None else set()
        self._mapping = get_model_conversion_mapping(model)
        # As from_pretrained: some families keep what decides routing in float32. Taken now: loading changes
        # the dtypes that are asked for here.
        self._dtype = model.dtype
        plan = getattr(model, "_get_dtype_plan", None)
        self._dtype_plan: dict[str, Any] = plan(model.dtype) if plan is not None else {}
        self._targets = self._find_targets()

    def _find_targets(self) -> dict[str, list[str]]:
        """By parameter of the model, the tensors on disk that make it."""
        renamings = [entry for entry in self._mapping if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in self._mapping if isinstance(entry, WeightConverter)]
        there = self._model.state_dict()
        targets: dict[str, list[str]] = {}
        for key in self._files:
            name, pattern = rename_source_key(
                key, renamings, converters, self._model.base_model_prefix, there
            )
            if name not in there and key in there:
                name = key
            if pattern is not None:
                # One tensor may make several parameters (a fused qkv): all have the same sources.
                converter = next(entry for entry in converters if pattern in entry.source_patterns)
                first = converter.target_patterns[0]
                for other in converter.target_patterns:
                    targets.setdefault(name.replace(first, other), []).append(key)
            else:
                targets.setdefault(name, []).append(key)
        return targets

    @property
    def files(self) -> list[Path]:
        """Those with weights."""
        return sorted(set(self._files.values()))

    def digest(self) -> dict[str, str]:
        """The digests of every file with weights, and of the configuration."""
        return {path.name: file_digest(path) for path in [self.folder / "config.json", *self.files]}

    def load(self, names: Iterable[str], device: Any) -> None:
        """Fills these parameters and buffers of the model; others stay as they are."""
        names = list(names)
        keys = sorted({key for name in names for key in self._targets.get(name, ())})
        with contextlib.ExitStack() as stack, _quiet():
            opened: dict[Path, Any] = {}
            tensors = {}
            for key in keys:
                path = self._files[key]
                try:
                    if path not in opened:
                        opened[path] = stack.enter_context(safe_open(path, "pt"))
                    tensors[key] = opened[path].get_slice(key)
                except SafetensorError as error:  # the index names another file, for example
                    raise invalid(f"{path}: {key} cannot be read: {error}") from None
            config = LoadStateDictConfig(
                device_map={"": device},
                dtype=self._dtype,
                dtype_plan=self._dtype_plan,
                weight_mapping=self._mapping,
            )
            convert_and_load_state_dict_in_model(self._model, tensors, config)
        self._check_loaded(names)

    def _check_loaded(self, names: Iterable[str]) -> None:
        """Raises InvalidArgument where transformers left out a tensor that does not fit the configuration."""
        there = self._model.state_dict(keep_vars=True)
        for name in names:
            if name in there and there[name].is_meta:
                keys = ", ".join(self._targets.get(name, ()))
                raise invalid(
                    f"{self.folder}: {keys} cannot become {name} {list(there[name].shape)}, as the "
                    "configuration has it: another shape, or damaged"
                )

    def check_writable(self, names: Iterable[str]) -> None:
        """Raises InvalidArgument where these parameters are of tensors that PatchedCopy does not write."""
        headers: dict[Path, dict[str, Any]] = {}
        for key in {key for name in names for key in self._targets.get(name, ())}:
            path = self._files[key]
            if path not in headers:
                headers[path] = read_header(path)[1]
            check_dtype(key, headers[path].get(key, {}).get("dtype", ""))

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that no tensor on disk makes."""
        return [name for name in names if name not in self._targets]

    def on_disk(self, values: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
        """The tensors on disk, by their names there, that make the parameters `wanted`.

        Args:
            values: of all parameters of the block, several of which may share a tensor on disk; or marks of
                the same shapes.
        """
        made = revert_weight_conversion(self._model, dict(values))
        found: dict[str, Any] = {}
        for name in wanted:
            for source in self._targets[name]:
                # The prefix of the base model may be there or not.
                match = [source] if source in made else []
                match = match or [key for key in made if source.endswith(f".{key}")]
                match = match or [key for key in made if key.endswith(f".{source}")]
                if len(match) != 1:
                    raise invalid(
                        f"{name}: transformers cannot write it back as {source}; "
                        "load the model and pass it instead of its folder"
                    )
                found[source] = made[match[0]]
        return found

    def copy_to(self, out: Path) -> PatchedCopy:
        """Copies the folder; the copy's tensors can then be replaced."""
        out.mkdir(parents=True, exist_ok=True)
        left = {"sparsefw.json", *self._unread}
        for entry in sorted(self.folder.iterdir()):
            if entry.is_file() and not entry.name.endswith(_OTHER_WEIGHTS) and entry.name not in left:
                shutil.copyfile(entry, out / entry.name)
        for path in self.files:
            shutil.copyfile(path, out / path.name)
        return PatchedCopy({key: out / path.name for key, path in self._files.items()})


# What becomes of a weight on disk: marks of a PatchedCopy.
PRUNED: Final = 0
KEPT: Final = 1
NEW: Final = 2


class PatchedCopy:
    """Safetensors files in which tensors are changed where they are: shape and dtype stay, and so does every
    bit of the weights that are kept.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._headers: dict[Path, tuple[int, dict[str, Any]]] = {}

    def _header(self, path: Path) -> tuple[int, dict[str, Any]]:
        """(where the data begins, entries)"""
        if path not in self._headers:
            self._headers[path] = read_header(path)
        return self._headers[path]

    def patch(self, key: str, marks: Any, new: Any = None) -> None:
        """Changes a tensor.

        Args:
            marks: uint8 of the tensor's shape: PRUNED, KEPT or NEW.
            new:   values where it is NEW; they are converted to the dtype that the tensor has there.
        """
        path = self._files[key]
        begin, entries = self._header(path)
        entry = entries[key]
        if entry["shape"] != list(marks.shape):
            raise invalid(f"{key}: is {entry['shape']} on disk; got {list(marks.shape)}")
        check_dtype(key, entry["dtype"])
        dtype = DTYPES[entry["dtype"]]
        start, end = entry["data_offsets"]
        with open(path, "rb+") as file:
            file.seek(begin + start)
            data = bytearray(file.read(end - start))
            if len(data) != marks.numel() * dtype.itemsize:
                raise invalid(
                    f"{key}: must have {marks.numel() * dtype.itemsize} bytes on disk; got {len(data)}"
                )
            if not data:
                return
            there = torch.frombuffer(data, dtype=dtype).reshape(marks.shape)
            there.masked_fill_(marks == PRUNED, 0)
            if new is not None:
                there.copy_(torch.where(marks == NEW, new.cpu().to(dtype), there))
            file.seek(begin + start)
            file.write(data)


DTYPES: Final[dict[str, Any]] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def check_dtype(key: str, dtype: str) -> None:
    """Raises InvalidArgument where a tensor on disk cannot be changed in place."""
    if dtype not in DTYPES:
        raise invalid(f"{key}: is {dtype} on disk; can be pruned: {', '.join(DTYPES)}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without a progress bar a block."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()


def meta_model(folder: Path, device: Any) -> Any:
    """The model of a folder without weights: parameters on "meta", buffers that no file has computed.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no model folder, or one with quantised weights.
    """
    if not (folder / "config.json").is_file():
        raise invalid(
            f"{folder}: has no config.json; a model must be a folder of transformers, or the model itself"
        )
    with loading(folder, "configuration"):
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if (folder / "sparsefw-packed.json").is_file():
        raise invalid(f"{folder}: is packed; `sparsefw unpack` makes the folder that can be pruned")
    if getattr(config, "quantization_config", None):
        raise invalid(f"{folder}: has quantised weights, which cannot be pruned")
    names = getattr(config, "architectures", None) or []
    kind = getattr(transformers, names[0], None) if names else None
    dtype = _stored_dtype(folder)
    with loading(folder, "model"), torch.device("meta"):
        if kind is not None:
            model = kind._from_config(config, dtype=dtype)
        else:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    for module in model.modules():
        module.__dict__.pop("_is_hf_initialized", None)
    # As from_pretrained: rotary frequencies and the like are in no file.
    model._move_missing_keys_from_meta_to_device(set(), {"": device}, None, None)
    model.initialize_weights()
    model.tie_weights()
    return model.eval()


def _stored_dtype(folder: Path) -> Any:
    """That most of the weights have on disk: the one that they keep."""
    counts: collections.Counter[str] = collections.Counter()
    for path in model_files(folder):
        for entry in read_header(path)[1].values():
            counts[entry["dtype"]] += math.prod(entry["shape"])
    known = [name for name, _ in counts.most_common() if name in DTYPES]
    if not known:
        raise invalid(f"{folder}: has no safetensors files with floating-point weights")
    return DTYPES[known[0]]


def unload(model: Any, names: Iterable[str]) -> None:
    """Puts parameters and persistent buffers back to "meta"."""
    for name in names:
        path, _, attribute = name.rpartition(".")
        module = model.get_submodule(path)
        value = getattr(module, attribute)
        empty = torch.empty_like(value, device="meta")
        if attribute in module._buffers:
            module._buffers[attribute] = empty
        else:
            module._parameters[attribute] = torch.nn.Parameter(empty, requires_grad=False)

"""What the arguments of the modifier mean for a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sparsefw import spec
from sparsefw.errors import invalid

# Options of jobs that the modifier sets, and what a caller gives in their place.
_OWN: Final = {
    "pattern": "mask_structure",
    "labels": None,
    "return_weight": None,
    "result_ttl": None,
    "deadline": None,
}
# Arguments of llm-compressor's own modifiers for sparsity, and what is here in their place.
_ELSEWHERE: Final = {
    "sparsity_profile": 'prune_model(allocation="owl") divides the sparsity among the blocks',
    "owl_m": 'prune_model(allocation="owl") divides the sparsity among the blocks',
    "owl_lmbda": 'prune_model(allocation="owl") divides the sparsity among the blocks',
    "dampening_frac": 'damping, with method="sparsegpt"',
    "preserve_sparsity_mask": "leave it out: a mask is chosen anew",
    "offload_hessians": "leave it out: sums of a block are on the device of its inputs",
    "sequential_targets": "oneshot(sequential_targets=...)",
    "sequential_update": "leave it out: blocks always follow each other",
}


def pattern_of(mask_structure: str) -> str:
    """The pattern of jobs, "per-row", "unstructured" or "K:N", for a mask structure.

    llm-compressor's "N:M" removes N of every M consecutive inputs; a job's "K:N" keeps K of every N. "0:0"
    chooses within a row, as WandaPruningModifier does.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT)
    """
    if mask_structure in ("per-row", "unstructured"):
        return mask_structure
    found = re.fullmatch(r"(\d+):(\d+)", mask_structure)
    if found is None:
        raise invalid(
            f'mask_structure must be "N:M" with whole numbers, "per-row" or "unstructured"; got '
            f'"{mask_structure}"'
        )
    removed, group = int(found[1]), int(found[2])
    if removed == group == 0:
        return "per-row"
    if not 0 < removed < group:
        raise invalid(f'mask_structure "N:M" removes N of M, 0 < N < M; got "{mask_structure}"')
    return f"{group - removed}:{group}"


def options_of(sparsity: float | None, mask_structure: str, others: Mapping[str, Any]) -> dict[str, Any]:
    """The options of every layer's job, as sparsefw.JobOptions.

    Args:
        others: options of jobs by name; None: not given.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT)
    """
    given = {name: value for name, value in others.items() if value is not None}
    for name in given:
        if name in _ELSEWHERE:
            raise invalid(f"SparseFWModifier has no {name}: {_ELSEWHERE[name]}")
        if name in _OWN:
            instead = f": give {_OWN[name]}" if _OWN[name] else " itself"
            raise invalid(f"SparseFWModifier sets {name}{instead}")
    if not isinstance(given.get("warm_start", ""), str):
        raise invalid("warm_start must be the name of a method: every layer has its own mask")
    options = {**given, "pattern": pattern_of(mask_structure)}
    if sparsity is not None:
        options["sparsity"] = sparsity
    spec.make_spec(options)  # type: ignore[arg-type]
    return options

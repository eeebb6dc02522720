"""Language models of Hugging Face, pruned block by block.

    from sparsefw.hf import prune_model

    report = prune_model("model/", data=texts, sparsity=0.6, swaps=True, state_dir="run/", out="pruned/")
    print(report)

Needs PyTorch and transformers: pip install 'sparsefw[hf]'.
"""

try:
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name not in ("torch", "transformers"):
        raise
    raise ModuleNotFoundError(
        f"{_error.name} is not installed: pip install 'sparsefw[hf]'", name=_error.name
    ) from None

from sparsefw.hf import packing
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.perplexity import Perplexity, evaluate_perplexity
from sparsefw.hf.pipeline import prune_model, tune
from sparsefw.hf.report import Report
from sparsefw.hf.training.distill import Distillation
from sparsefw.hf.training.refine import BlockRefinement
from sparsefw.hf.tuning import Tuned, Tuning
from sparsefw.paired import paired

__all__ = [
    "BlockRefinement",
    "Distillation",
    "Perplexity",
    "Ray",
    "Report",
    "Tuned",
    "Tuning",
    "evaluate_perplexity",
    "packing",
    "paired",
    "prune_model",
    "tune",
]

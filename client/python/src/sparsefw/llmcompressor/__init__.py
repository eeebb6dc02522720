"""A modifier for llm-compressor, whose layers a SparseFW server prunes.

    from llmcompressor import oneshot
    from sparsefw.llmcompressor import SparseFWModifier

    modifier = SparseFWModifier(sparsity=0.6, ignore=["re:.*lm_head"])
    oneshot(model="model/", dataset=samples, recipe=modifier, output_dir="pruned/")
    print(modifier.report)

Importing it also registers the name, so that recipes in YAML may have a SparseFWModifier. Needs
llm-compressor: pip install 'sparsefw[llmcompressor]'.
"""

try:
    import llmcompressor as _  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "llmcompressor":
        raise
    raise ModuleNotFoundError(
        "llm-compressor is not installed: pip install 'sparsefw[llmcompressor]'", name="llmcompressor"
    ) from None

from sparsefw.llmcompressor.modifier import SparseFWModifier

__all__ = ["SparseFWModifier"]

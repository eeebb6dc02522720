"""Tiny models through llm-compressor's oneshot, and through prune_model."""

import datasets
import llmcompressor
import test_programs
import tiny
import torch
import transformers
from sparsefw.hf import prune_model
from sparsefw.llmcompressor import SparseFWModifier

COUNT, LENGTH = 20, 24


def save(folder, family="llama", **changes):
    """A folder with a model and a tokenizer."""
    tiny.make(family, **changes).save_pretrained(folder)
    test_programs.tokenizer().save_pretrained(folder)  # llm-compressor asks for one
    return folder


def load(folder, **arguments):
    """With the attention that llm-compressor calibrates with: other kernels have other last bits."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **arguments)


def ids(count=COUNT):
    return tiny.tokens(count, LENGTH).tolist()


def oneshot(model, recipe, samples=None, **arguments):
    samples = ids() if samples is None else samples
    dataset = datasets.Dataset.from_dict(
        {"input_ids": samples, "attention_mask": [[1] * len(one) for one in samples]})
    return llmcompressor.oneshot(
        model=model, dataset=dataset, recipe=recipe, num_calibration_samples=len(samples), max_seq_length=LENGTH,
        shuffle_calibration_samples=False, **arguments)


def modified(folder, **arguments):
    """(model, modifier) after oneshot."""
    modifier = SparseFWModifier(**arguments)
    model = load(folder)
    oneshot(model, modifier)
    return model, modifier


def pruned(folder, **options):
    """(model, report) of prune_model with the same samples."""
    model = load(folder)
    report = prune_model(model, data=ids(), gram="client", progress=False, **options)
    return model, report

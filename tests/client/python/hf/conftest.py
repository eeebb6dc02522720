"""Tests of sparsefw.torch and sparsefw.hf: skipped where PyTorch is not installed."""

import os

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: client/python/make-environment --hf build/venv")
pytest.importorskip("transformers", reason="transformers is not installed")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402

torch.set_num_threads(1)  # tiny models: threads only wait for each other

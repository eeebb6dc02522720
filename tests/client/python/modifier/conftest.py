"""Tests of sparsefw.llmcompressor: skipped where llm-compressor is not installed. `script/python --llmcompressor`
makes an environment that has it, and runs them."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("llmcompressor", reason="llm-compressor is not installed: script/python --llmcompressor")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "hf")]

import torch  # noqa: E402

torch.set_num_threads(1)  # tiny models: threads only wait for each other

"""What one node of two cores needs for a block of Llama-3-8B beside the solves: the input of simulate.py.

Runs a block of these shapes with random weights on one sequence of 2048 tokens, sums the Gram matrices of
its four inputs, and takes steps of refinement. Needs PyTorch, Transformers and 12 GB of memory.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "core/benchmarks"), str(ROOT / "client/python/src")]

import shapes  # noqa: E402
from harness import machine  # noqa: E402

from sparsefw.hf.layout import layout_of  # noqa: E402
from sparsefw.hf.training.steps import Schedule, Training  # noqa: E402
from sparsefw.torch import GramSum  # noqa: E402

TOKENS = 2048


def one_block(of):
    """A model of this one block, and a vocabulary that does not count."""
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=of.width,
        intermediate_size=of.inner,
        num_hidden_layers=1,
        num_attention_heads=of.heads,
        num_key_value_heads=of.key_heads,
        max_position_embeddings=TOKENS,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def seconds(work, runs):
    """Wall time of one run, best and median, and its processor time shared by the cores, which other programs
    on the machine change less."""
    wall, processor = [], []
    work()
    for _ in range(runs):
        began, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        processor.append((time.process_time() - used) / torch.get_num_threads())
    return {"wall": statistics.median(wall), "processor": statistics.median(processor), "runs": runs}


def measure(of, runs):
    model = one_block(of)
    ids = torch.randint(256, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = {"forward": seconds(lambda: model.model(ids, use_cache=False), runs)}
    for columns in sorted({columns for _, columns in of.grams}):
        inputs, gram = torch.randn(TOKENS, columns).to(torch.bfloat16), GramSum(columns)
        found[f"gram_{columns}"] = seconds(lambda inputs=inputs, gram=gram: gram.add(inputs), runs)
        del gram
    block, [layout] = model.model.layers[0], layout_of(model, ("lm_head",), False)
    captured = {}

    def capture(_, args, arguments):
        captured.update(args=args, arguments=arguments)

    handle = block.register_forward_pre_hook(capture, with_kwargs=True)
    with torch.no_grad():
        model.model(ids, use_cache=False)
    handle.remove()
    hidden = captured["args"][0].float()
    arguments = {
        name: tuple(one.float() for one in value) if isinstance(value, tuple) else value
        for name, value in captured["arguments"].items()
    }
    training = Training(block, layout.trained, Schedule(1, 1e-4), 2 * runs + 2)
    training.hold(block, layout)

    def backward():
        out = training.run(hidden, **arguments)
        (out[0] if isinstance(out, tuple) else out).float().square().mean().backward()

    found["refinement_step"] = seconds(functools.partial(training.step, backward), runs)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    busy = machine.busy_share()
    result = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "host": machine.host(),
        "busy_before": busy,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "tokens": TOKENS,
        "shape": shapes.LLAMA_3_8B.name,
        "seconds_of_a_sequence": measure(shapes.LLAMA_3_8B, options.runs),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["seconds_of_a_sequence"], indent=1))


if __name__ == "__main__":
    main()

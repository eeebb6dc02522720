"""Trains a pruned model further, best one whose blocks were refined; its zeros stay zeros.

    sparsefw prune-model model/ --data text.txt --sparsity 0.6 --preset fast --refine-epochs 4 --out refined/
    python fine_tune.py refined/ text.txt tuned/ --held-out other.txt --steps 150 --dense model/

With --dense the loss is the divergence from what the dense model predicts; else it is that of the next token.
What refinement and these steps bring in equal seconds is measured in docs/results.md, "Refinement and
fine-tuning".
"""

import argparse
import time

import torch
import transformers

from sparsefw.hf import data, evaluate_perplexity
from sparsefw.torch import hold_masks


def loss_of(model, dense, ids):
    """Nats a token."""
    if dense is None:
        return model(input_ids=ids, labels=ids).loss
    with torch.no_grad():
        wanted = dense(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    found = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    return (wanted.exp() * (wanted - found)).sum(-1).mean()


def fine_tune(model, sequences, steps, *, rate=2e-4, batch=1, dense=None, bfloat16=False, on_step=None):
    """Takes the sequences in turn. Call it within hold_masks; embeddings and head stay as they are.

    Args:
        sequences: token ids [1, length].
        rate:      of AdamW at the first step; it falls to 0 along a cosine.
        batch:     sequences of a step.
        dense:     a model whose predictions are learnt, in place of the text.
        bfloat16:  products are in bfloat16, weights and steps in float32 all the same.
        on_step:   gets the number of every step, from 1, and its loss.
    """
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    fixed = {id(value) for end in ends for value in end.parameters()}
    trained = [value for value in model.parameters() if id(value) not in fixed]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for step in range(steps):
        ids = torch.cat([sequences[(step * batch + index) % len(sequences)] for index in range(batch)])
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=bfloat16):
            loss = loss_of(model, dense, ids)
        loss.backward()
        optimizer.step()
        schedule.step()
        model.zero_grad()
        if on_step is not None:
            on_step(step + 1, loss.item())
    model.eval()


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--dense", metavar="MODEL_DIR", help="learn what this model predicts")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=1, help="sequences of a step")
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--samples", type=int, default=16, help="sequences in all, spread over the text")
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--bfloat16", action="store_true", help="multiply in bfloat16")
    parser.add_argument("--windows", type=int, default=16, help="of held-out text")
    arguments = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    dense = None
    if arguments.dense:
        dense = transformers.AutoModelForCausalLM.from_pretrained(arguments.dense, dtype=torch.float32).eval()
    length, steps = arguments.sequence_length, arguments.steps

    def perplexity():
        found = evaluate_perplexity(
            model, tokenizer, read(arguments.held_out), sequence_length=length, samples=arguments.windows)
        return found.value

    def show(step, loss):
        print(f"step {step}/{steps}: loss {loss:.4f}, {time.monotonic() - started:.1f} s", flush=True)

    sequences = data.sequences(tokenizer, read(arguments.text), length, arguments.samples)
    before = perplexity()
    with hold_masks(model) as held:
        zeros = sum(int((model.get_parameter(name) == 0).sum()) for name in held.names)
        print(f"{zeros} zeros in {len(held.names)} matrices; held-out perplexity {before:.2f}", flush=True)
        started = time.monotonic()
        fine_tune(model, sequences, steps, rate=arguments.rate, batch=arguments.batch, dense=dense,
                  bfloat16=arguments.bfloat16, on_step=show)
        model.save_pretrained(arguments.out)
        tokenizer.save_pretrained(arguments.out)
        left = sum(int((model.get_parameter(name) == 0).sum()) for name in held.names)
    print(f"{left} zeros; held-out perplexity {perplexity():.2f}, before {before:.2f}")


if __name__ == "__main__":
    main()

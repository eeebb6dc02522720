"""Fine-tunes a pruned model, best one whose blocks were refined; its zeros stay zeros.

    sparsefw prune-model model/ --data text.txt --sparsity 0.6 --swaps --refine-blocks --out refined/
    python fine_tune.py refined/ text.txt tuned/ --held-out other.txt --steps 50 --dense model/

With --dense the loss is the divergence from what the dense model predicts; else it is that of the next token.
"""

import argparse
import time

import torch
import transformers

from sparsefw.hf import data, evaluate_perplexity
from sparsefw.torch import hold_masks


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
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step")
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--windows", type=int, default=16, help="of held-out text")
    arguments = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    dense = None
    if arguments.dense:
        dense = transformers.AutoModelForCausalLM.from_pretrained(arguments.dense, dtype=torch.float32).eval()
    length = arguments.sequence_length

    def loss_of(ids):
        if dense is None:
            return model(input_ids=ids, labels=ids).loss
        with torch.no_grad():
            wanted = dense(input_ids=ids, use_cache=False).logits.log_softmax(-1)
        found = model(input_ids=ids, use_cache=False).logits.log_softmax(-1)
        return (wanted.exp() * (wanted - found)).sum(-1).mean()

    def perplexity():
        found = evaluate_perplexity(
            model, tokenizer, read(arguments.held_out), sequence_length=length, samples=arguments.windows)
        return found.value

    count = arguments.steps * arguments.batch
    sequences = data.sequences(tokenizer, read(arguments.text), length, count)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.0)
    before = perplexity()
    with hold_masks(model) as held:
        zeros = sum(int((model.get_parameter(name) == 0).sum()) for name in held.names)
        print(f"{zeros} zeros in {len(held.names)} matrices; held-out perplexity {before:.2f}", flush=True)
        model.train()
        started = time.monotonic()
        for step in range(arguments.steps):
            start = step * arguments.batch
            batch = [sequences[(start + index) % len(sequences)] for index in range(arguments.batch)]
            ids = torch.cat(batch)
            loss = loss_of(ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds = time.monotonic() - started
            print(f"step {step + 1}/{arguments.steps}: loss {loss.item():.4f}, {seconds:.1f} s", flush=True)
        model.save_pretrained(arguments.out)
        tokenizer.save_pretrained(arguments.out)
        left = sum(int((model.get_parameter(name) == 0).sum()) for name in held.names)
    print(f"{left} zeros; held-out perplexity {perplexity():.2f}, before {before:.2f}")


if __name__ == "__main__":
    main()

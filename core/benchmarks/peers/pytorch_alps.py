"""ALPS (Meng et al. 2024) as its authors' program computes it, in PyTorch on the CPU.

    pytorch_alps.py --layer FILE --threads T

FILE is a safetensors file with float32 tensors "weight" [rows, cols] and "gram" [cols, cols].
Prints one line that says what it is, then answers every line {"pattern": "per_row:0.6"} with one
line: seconds, iterations, loss of the new weights (float64, outside the clock).

float32 but for the eigendecomposition, as there; sparsefw/alps.h has the arithmetic. Per-row, a
pattern that it does not have, selects row by row.
"""
import argparse
import json
import sys
import time

import torch

from pytorch_peer import Groups, describe, read_layer, top_mask

ITERATIONS, CHECK_EVERY, SETTLED_FROM = 300, 3, 30


class Alps:
    def __init__(self, weight, gram, pattern):
        self.shape = weight.shape
        self.groups = Groups(pattern, *weight.shape)
        gram = gram + 0.01 * gram.diagonal().mean() * torch.eye(len(gram))
        self.norms = gram.diagonal().sqrt() + 1e-8
        self.gram = gram / self.norms / self.norms.unsqueeze(1)
        self.dense = weight * self.norms  # rows are outputs
        self.target = self.dense @ self.gram

    def support(self, values):
        return top_mask(self.groups(values.abs()), self.groups.keep).view(self.shape)

    def inverse(self, rho):
        return ((self.vectors / (self.values + rho)) @ self.vectors.T).float()

    def run(self):
        """(new weights, iterations)"""
        self.values, self.vectors = torch.linalg.eigh(self.gram.double())
        solved, iteration = self._alternate()
        support = self.support(solved)
        return self._steps(solved, support) / self.norms, iteration

    def _alternate(self):
        kept = self.support(self.dense)
        first, total = self.dense * kept, int(kept.sum())
        pruned, multiplier, checked = first.clone(), torch.zeros_like(first), kept
        rho, raised = 0.1, False
        inverse = self.inverse(rho)
        for iteration in range(1, ITERATIONS + 1):
            solved = (self.target - multiplier + rho * pruned) @ inverse
            both = multiplier / rho + solved
            kept = self.support(both)
            pruned = both * kept
            multiplier += rho * (solved - pruned)
            if iteration % CHECK_EVERY:
                continue
            changed = int((kept != checked).sum())
            checked, share = kept, changed / total
            if share > 0.005:
                raised, rho = True, rho * (1.3 if share > 0.1 else 1.2)
            elif raised:
                if not changed:
                    break
                rho *= 1.1
            else:
                rho /= 5
                if changed:
                    pruned, multiplier = first.clone(), torch.zeros_like(first)
            rho = min(rho, 1e6)
            inverse = self.inverse(rho)
            if iteration > SETTLED_FROM and share < 0.0003:
                break
        return solved, iteration

    def _steps(self, solved, support):
        solution = solved * support
        residual = (self.target - solution @ self.gram) * support
        direction = residual.clone()
        squares = (residual**2).sum(dim=1, keepdim=True)
        wanted = 1e-8 * ((self.target * support)**2).sum(dim=1, keepdim=True)
        for _ in range(10):
            if bool((squares <= wanted).all()):
                break
            product = direction @ self.gram
            curvature = (direction * product).sum(dim=1, keepdim=True)
            alpha = torch.where(curvature > 0, squares / curvature, 0)
            solution += alpha * direction
            residual -= alpha * product * support
            last, squares = squares, (residual**2).sum(dim=1, keepdim=True)
            direction = residual + torch.where(last > 0, squares / last, 0) * direction
        return solution


def answer(weight, gram, case):
    begin = time.perf_counter()
    updated, iterations = Alps(weight, gram, case["pattern"]).run()
    seconds = time.perf_counter() - begin
    left = weight.double() - updated.double()
    return {"seconds": seconds, "iterations": iterations,
            "loss": float((left * (left @ gram.double())).sum())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer", required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    weight, gram = read_layer(options.layer)
    print(json.dumps(describe("cpu")), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(weight, gram, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""The paper's Algorithm 2 as one would first write it in PyTorch, in float32.

    pytorch_peer.py --layer FILE --threads T [--device cpu|cuda] [--tf32]

FILE is a safetensors file with float32 tensors "weight" [rows, cols] and "gram" [cols, cols].
Prints one line that says what it is, then answers every line
{"pattern": "unstructured:0.6", "alpha": 0.9, "iterations": 200, "seconds": 30} with one line:
iterations that were run, seconds after each of them, relaxed loss after the last. "tf32": true or
false beside them overrides --tf32 for one case.

An iteration is one dense product D G, one torch.topk, one update of the mask in place. The
gradient is taken at the fixed weights and the mask together, as the engine does
(docs/numerics.md); warm start, fixed set and step sizes are the engine's too. Starting point and
loss are outside the clock.

On a GPU a few steps come first, events of the device tell the time, and the host waits for it
every SYNC_EVERY steps only. --tf32 lets products round their inputs to TF32; the loss is that of
float32.
"""
import argparse
import json
import struct
import sys
import time
from pathlib import Path

import torch

WARM_UP = 3  # steps on a GPU before the clock starts
SYNC_EVERY = 10


def read_layer(path):
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])

    def tensor(name):
        begin, end = header[name]["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4,
                                offset=8 + length + begin)
        return flat.reshape(header[name]["shape"]).clone()

    return tensor("weight"), tensor("gram")


def top_mask(scores, count):
    """The `count` largest of every row of `scores`."""
    mask = torch.zeros_like(scores, dtype=torch.bool)
    return mask.scatter_(1, scores.topk(count, dim=1, sorted=False).indices, True)


class Groups:
    """The pattern: the weights as [groups, size of a group], `keep` of each."""

    def __init__(self, pattern, rows, cols):
        name, number = pattern.split(":")
        if name == "unstructured":
            self.count, self.size = 1, rows * cols
        elif name == "per_row":
            self.count, self.size = rows, cols
        else:
            self.count, self.size = rows * cols // int(number), int(number)
        self.keep = (int(name) if name.isdigit()
                     else self.size - int(self.size * float(number)))

    def __call__(self, matrix):
        return matrix.view(self.count, self.size)


class FrankWolfe:
    def __init__(self, weight, gram, pattern, alpha):
        rows, cols = weight.shape
        self.weight, self.gram = weight, gram
        self.groups = Groups(pattern, rows, cols)
        saliency = (weight.double().abs() * gram.diagonal().double().sqrt()).float()
        warm = top_mask(self.groups(saliency), self.groups.keep)
        self.fixed = self._fixed_set(saliency, warm.view(rows, cols), alpha)
        capacity = self.groups.keep - self.groups(self.fixed).sum(dim=1)  # of every group
        self.most = int(capacity.max())
        # Groups of n:m differ in what is free; elsewhere one number says it all.
        self.capacity = None if bool((capacity == self.most).all()) else capacity.unsqueeze(1)
        self.fixed_weight = self.fixed.float()
        self.mask = warm.view(rows, cols).float() - self.fixed_weight
        self.pruned = torch.empty_like(weight)
        self.product = torch.empty_like(weight)
        self.iteration = 0
        self._multiply()  # first call: the library starts its threads

    def _fixed_set(self, saliency, warm, alpha):
        """The alpha fraction of the kept weights with the highest saliency; of n:m per row."""
        scores = saliency.masked_fill(~warm, -torch.inf)
        if self.groups.count == 1:
            scores = scores.view(1, -1)
        kept = int(warm.sum()) // scores.shape[0]
        return top_mask(scores, int(alpha * kept)).view_as(saliency)

    def _multiply(self):
        torch.add(self.fixed_weight, self.mask, out=self.pruned)
        self.pruned.neg_().add_(1).mul_(self.weight)
        torch.mm(self.pruned, self.gram, out=self.product)

    def step(self):
        self._multiply()
        scores = self.product.mul_(self.weight).masked_fill_(self.fixed, -torch.inf)
        values, indices = self.groups(scores).topk(self.most, dim=1,
                                                   sorted=self.capacity is not None)
        chosen = values > 0
        if self.capacity is not None:
            chosen &= torch.arange(self.most, device=chosen.device) < self.capacity
        eta = 2 / (self.iteration + 2)
        self.mask.mul_(1 - eta)
        self.groups(self.mask).scatter_add_(1, indices, chosen.float().mul_(eta))
        self.iteration += 1

    def relaxed_loss(self):
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        self._multiply()
        torch.set_float32_matmul_precision(precision)
        return float((self.pruned.double() * self.product.double()).sum())


class HostClock:
    def __init__(self):
        self._seconds = []
        self._begin = time.perf_counter()

    def tick(self):
        """Ends a step; returns the seconds since the first one began."""
        self._seconds.append(round(time.perf_counter() - self._begin, 6))
        return self._seconds[-1]

    def seconds(self):
        return self._seconds


class CudaClock:
    """The host may be SYNC_EVERY steps ahead, as it is in a program that asks for no times."""

    def __init__(self):
        torch.cuda.synchronize()
        self._events = []
        self._record()
        self._begin = time.perf_counter()

    def _record(self):
        self._events.append(torch.cuda.Event(enable_timing=True))
        self._events[-1].record()

    def tick(self):
        self._record()
        if len(self._events) % SYNC_EVERY == 0:
            torch.cuda.synchronize()
        return time.perf_counter() - self._begin

    def seconds(self):
        torch.cuda.synchronize()
        return [round(self._events[0].elapsed_time(event) / 1e3, 6) for event in self._events[1:]]


def answer(weight, gram, case):
    on_gpu = weight.is_cuda
    program = FrankWolfe(weight, gram, case["pattern"], case["alpha"])
    if on_gpu:
        for _ in range(WARM_UP):
            program.step()
        program = FrankWolfe(weight, gram, case["pattern"], case["alpha"])
    clock = CudaClock() if on_gpu else HostClock()
    elapsed = 0
    while program.iteration < case["iterations"] and (not program.iteration
                                                      or elapsed < case["seconds"]):
        program.step()
        elapsed = clock.tick()
    return {"iterations": program.iteration, "seconds_after": clock.seconds(),
            "relaxed_loss": program.relaxed_loss()}


def describe(device):
    blas = "MKL" if torch.backends.mkl.is_available() else "the BLAS it was built with"
    source = "Debian" if "/dist-packages/" in torch.__file__ else "PyPI"
    described = {"torch": torch.__version__, "source": source, "blas": blas,
                 "threads": torch.get_num_threads()}
    if device == "cuda":
        described.update(device=torch.cuda.get_device_name())
    return described


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tf32", action="store_true", help="products in TF32, on a GPU")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} sees no CUDA device")
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    weight, gram = (tensor.to(options.device) for tensor in read_layer(options.layer))
    print(json.dumps(describe(options.device)), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        tf32 = case.get("tf32", options.tf32)
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        print(json.dumps(answer(weight, gram, case)), flush=True)


if __name__ == "__main__":
    main()

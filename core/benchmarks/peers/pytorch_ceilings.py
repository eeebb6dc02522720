"""What PyTorch reaches on a device when it is simply asked: the ceilings of script/bench-gpu.

    pytorch_ceilings.py [--device cuda|cpu] [--size 8192] [--copy-mib 4096]
        [--cols 4096] [--tokens 8192]

Prints one JSON object: bytes a second of a copy on the device (read and written both counted) and
of an upload from pageable and pinned host memory; flops a second of a [size, size] product for
every precision; seconds of X^T X of [tokens, cols], all of it computed. Random values, since zeros
are multiplied faster. Every figure is the median of several, after warming up.
"""
import argparse
import json
import statistics
import sys
import time

import torch

REPETITIONS = 10
WARM_UP = 3
PRECISIONS = {"fp32": (torch.float32, "highest"), "tf32": (torch.float32, "high"),
              "bf16": (torch.bfloat16, "highest"), "fp16": (torch.float16, "highest")}


def seconds_of(run, device):
    """The median time of run(), by the device's own clock where it has one."""
    measured = []
    for index in range(WARM_UP + REPETITIONS):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            seconds = begin.elapsed_time(end) / 1e3
        else:
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
        if index >= WARM_UP:
            measured.append(seconds)
    return statistics.median(measured)


def copy_rate(device, mib):
    source = torch.randn(mib << 18, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: target.copy_(source), device)


def upload_rates(device, mib):
    source = torch.randn(mib << 18)
    target = torch.empty_like(source, device=device)
    rates = {"pageable": source.nbytes / seconds_of(lambda: target.copy_(source), device)}
    if device == "cuda":
        pinned = source.pin_memory()
        rates["pinned"] = source.nbytes / seconds_of(lambda: target.copy_(pinned), device)
    return rates


def products(device, size, cols, tokens):
    """(flops a second of [size, size] products, seconds of X^T X), by precision."""
    rates, grams = {}, {}
    for name, (dtype, precision) in PRECISIONS.items():
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        rates[name] = 2 * size**3 / seconds_of(lambda: torch.mm(a, b), device)
        x = torch.randn(tokens, cols, device=device).to(dtype)
        grams[name] = seconds_of(lambda: torch.mm(x.T, x), device)
    return rates, grams


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--copy-mib", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=8192)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} sees no CUDA device")
    torch.set_grad_enabled(False)
    result = {"torch": torch.__version__, "device": options.device, "size": options.size}
    if options.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        options.copy_mib = min(options.copy_mib, properties.total_memory >> 23)  # an eighth
        result.update(name=properties.name, memory_bytes=properties.total_memory,
                      multiprocessors=properties.multi_processor_count,
                      capability=f"{properties.major}.{properties.minor}",
                      cuda=torch.version.cuda)
    result["copy_bytes_per_second"] = copy_rate(options.device, options.copy_mib)
    result["upload_bytes_per_second"] = upload_rates(options.device, options.copy_mib // 8 or 1)
    result["gemm_flops_per_second"], result["gram_seconds"] = products(
        options.device, options.size, options.cols, options.tokens)
    result.update(cols=options.cols, tokens=options.tokens)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

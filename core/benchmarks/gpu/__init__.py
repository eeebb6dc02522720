"""The benchmarks of a GPU: what script/bench-gpu and script/gpu-check run. Standard library
alone."""

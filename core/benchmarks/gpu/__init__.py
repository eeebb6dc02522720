"""The engine of a GPU beside PyTorch on the same card: what script/bench-gpu runs. Standard library
alone."""

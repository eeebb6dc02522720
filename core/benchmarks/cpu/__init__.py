"""The CPU engine beside PyTorch and the ceilings of the machine: what script/bench runs."""

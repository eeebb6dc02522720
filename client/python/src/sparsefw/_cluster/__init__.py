"""What actors of a cluster run: without PyTorch and transformers, which take seconds and memory to load."""

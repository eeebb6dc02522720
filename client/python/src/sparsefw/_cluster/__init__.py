"""What actors of a cluster run without PyTorch."""

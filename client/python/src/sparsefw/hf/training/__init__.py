"""Gradient steps on what was pruned: on one block (`refine`), on the whole model (`distill`)."""

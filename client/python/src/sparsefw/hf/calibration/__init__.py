"""The samples' way through the blocks of a model, and what is measured and trained on it."""

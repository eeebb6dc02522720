"""What is pruned: tensors from files and from the caller, checked before anything is sent."""

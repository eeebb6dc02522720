"""What script/gpu-check does: bundles the programs for a machine with a GPU, and checks them there.
Standard library alone."""

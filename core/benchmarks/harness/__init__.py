"""What script/bench, script/bench-gpu and script/gpu-check share. Standard library alone."""

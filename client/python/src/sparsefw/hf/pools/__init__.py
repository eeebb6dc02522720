"""Where the matrices of a run are pruned: servers, or a Ray cluster."""

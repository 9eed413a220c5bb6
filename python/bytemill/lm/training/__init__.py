"""Training runs: configuration, the training loop, run folders and logs."""

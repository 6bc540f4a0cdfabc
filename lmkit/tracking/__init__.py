"""What W&B is shown of runs and sweeps: it mirrors the run folders, which are the truth."""

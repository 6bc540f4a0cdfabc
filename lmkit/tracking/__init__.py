"""What W&B is told of runs and sweeps; the run folders are the truth that it is rebuilt from."""

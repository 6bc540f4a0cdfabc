"""Runs and sweeps in W&B. The run folders hold the truth, and W&B can be rebuilt from them."""

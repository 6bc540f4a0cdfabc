"""Finished runs and sweeps in W&B. The run folders are authoritative: records are made of them."""

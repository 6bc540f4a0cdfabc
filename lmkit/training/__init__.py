"""A run from its lock to its best checkpoint."""

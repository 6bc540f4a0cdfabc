"""Trains a run, to its best checkpoint."""

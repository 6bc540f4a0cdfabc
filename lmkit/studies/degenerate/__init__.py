"""Degenerate layers: the bottleneck of ReLU layers, and what mixtures of experts do about it."""

"""Measurements of a `Predictor`: its predictions, log P, logits and their gradients."""

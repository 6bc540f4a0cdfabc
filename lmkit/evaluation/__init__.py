"""Predicting texts with finished runs."""

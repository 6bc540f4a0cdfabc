"""Sweeps: many runs from one command, which also resumes them. No torch."""

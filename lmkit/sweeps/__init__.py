"""Sweeps: many runs from one line, which the same line resumes. No torch."""

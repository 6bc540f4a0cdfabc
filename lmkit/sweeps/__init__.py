"""Sweeps: many runs from one line, which the same command resumes. No torch."""

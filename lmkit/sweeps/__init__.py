"""Sweeps: many runs from one line, resumed by the same line. Only `check` imports torch."""

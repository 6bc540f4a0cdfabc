"""Recurrent language models with interchangeable output heads, and the spectrum of their log P."""

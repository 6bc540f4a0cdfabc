"""Pretrained models of transformers: loading them, what they read, what is measured of them."""

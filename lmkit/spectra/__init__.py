"""Singular values of log P from a stream of rows, and what is measured on them."""

"""Recurrent language models with interchangeable output heads, and the spectrum of their log P."""

import os

# PyTorch's setting for large tensors in huge pages, read at its first allocation. A step allocates
# the same tensors as the one before, and each page that the kernel hands out anew costs a fault:
# measured a tenth to a fifth of a step on a CPU.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

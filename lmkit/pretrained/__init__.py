"""Pretrained models of transformers: loading them, what they read, what is measured of them.

Most of its modules import torch, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what analyses use, for mypy
    from lmkit.pretrained import hf_checkpoints as hf_checkpoints
    from lmkit.pretrained import loading as loading
    from lmkit.pretrained import reader as reader
    from lmkit.pretrained import text_statistics as text_statistics
else:
    __getattr__ = modules_on_use(__name__)

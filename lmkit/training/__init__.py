"""Trains a run, to its best checkpoint.

Most of its modules import torch, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what commands use, for mypy
    from lmkit.training import build as build
    from lmkit.training import finetuning as finetuning
    from lmkit.training import make as make
    from lmkit.training import model_size as model_size
    from lmkit.training import parts as parts
    from lmkit.training import run as run
else:
    __getattr__ = modules_on_use(__name__)

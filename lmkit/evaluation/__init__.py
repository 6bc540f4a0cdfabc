"""Predicting texts with finished runs. Most modules here import torch, so each loads when it is
first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what analyses use, for mypy
    from lmkit.evaluation import generate as generate
    from lmkit.evaluation import method as method
    from lmkit.evaluation import split_reader as split_reader
else:
    __getattr__ = modules_on_use(__name__)

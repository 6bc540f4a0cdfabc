"""Measuring trained models.

Most of its modules import torch, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what analyses and commands use, for mypy
    from lmkit.evaluation import conclusion as conclusion
    from lmkit.evaluation import each_checkpoint as each_checkpoint
    from lmkit.evaluation import full_run as full_run
    from lmkit.evaluation import generate as generate
    from lmkit.evaluation import load as load
    from lmkit.evaluation import method as method
    from lmkit.evaluation import pretrained as pretrained
    from lmkit.evaluation import pretrained_checkpoints as pretrained_checkpoints
    from lmkit.evaluation import pretrained_reader as pretrained_reader
    from lmkit.evaluation import pretrained_statistics as pretrained_statistics
    from lmkit.evaluation import split_reader as split_reader
else:
    __getattr__ = modules_on_use(__name__)

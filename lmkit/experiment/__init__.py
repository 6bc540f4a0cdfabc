"""A run from its configuration to its result. Most modules here import torch, so each loads when it
is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what commands and analyses use, for mypy
    from lmkit.experiment import conclusion as conclusion
    from lmkit.experiment import finetuning as finetuning
    from lmkit.experiment import load as load
    from lmkit.experiment import make as make
    from lmkit.experiment import model_size as model_size
    from lmkit.experiment import objects as objects
    from lmkit.experiment import run as run
    from lmkit.experiment import trained_run as trained_run
else:
    __getattr__ = modules_on_use(__name__)

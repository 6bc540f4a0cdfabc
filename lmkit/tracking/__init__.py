"""Finished runs and sweeps in W&B. The run folders are authoritative: records are made of them. The
modules import wandb, so each loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what commands use, for mypy
    from lmkit.tracking import dashboard as dashboard
    from lmkit.tracking import sync as sync
else:
    __getattr__ = modules_on_use(__name__)

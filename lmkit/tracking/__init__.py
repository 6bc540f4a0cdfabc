"""Runs and sweeps in W&B. The run folders are authoritative, and W&B can be rebuilt from them. Its
modules import wandb, so each loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what commands use, for mypy
    from lmkit.tracking import publish as publish
    from lmkit.tracking import summary as summary
    from lmkit.tracking import sync as sync
    from lmkit.tracking import workspace as workspace
else:
    __getattr__ = modules_on_use(__name__)

"""The bottleneck in isolation: experiments that need no language model, and take minutes.

Its modules import torch, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what the command uses, for mypy
    from lmkit.studies import running as running
    from lmkit.studies import study as study
else:
    __getattr__ = modules_on_use(__name__)

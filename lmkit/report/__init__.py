"""The page over finished runs. No torch.

Its modules import matplotlib and scipy, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what the command uses, for mypy
    from lmkit.report import contents as contents
else:
    __getattr__ = modules_on_use(__name__)

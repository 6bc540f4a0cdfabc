"""Tables, figures and tests over finished runs.

Its modules import matplotlib, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what the report's command uses, for mypy
    from lmkit.analyses import finding as finding
else:
    __getattr__ = modules_on_use(__name__)

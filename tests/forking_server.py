"""What the server of `tests.forked` does before it forks: imports, and a run of a second."""

from __future__ import annotations

import tempfile

from tests.faults.scenarios import PLAIN
from tests.faults.warm import warm_up

with tempfile.TemporaryDirectory() as folder:
    warm_up([*PLAIN, f"runs_dir={folder}"])

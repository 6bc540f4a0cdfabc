"""The groups of runs made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.cli.finetune import published_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.run_files import Files
from lmkit.runs.finished import LeftOut
from lmkit.runs.selection import select_runs


@pytest.fixture
def study_of() -> Callable[..., tuple[Study, list[LeftOut]]]:
    """Makes the one study of the runs in a folder, and says which runs are left out."""

    def make(root: Path, baseline: str = "softmax") -> tuple[Study, list[LeftOut]]:
        (study,), left_out = studies(
            select_runs("runs", str(root)).runs, baseline, published_config, Files()
        )
        return study, left_out

    return make

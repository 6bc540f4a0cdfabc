"""What the manual promises of the commands on finished runs."""

from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from tests.claims.conftest import Lmkit


@pytest.fixture(autouse=True)
def mine(three: list[RunFolder], lmkit: Lmkit) -> None:
    """The sweep `mine`, whose points are the runs."""
    points = [Point(run.path.name, [], run.path.name, "toy", 2, None) for run in three]
    SweepFolder.of(Manifest("mine", "runs", str(Path.cwd()), 0, points)).save()


def test_status_tells_which_code_has_changed_since(printed, monkeypatch):
    assert "code" not in printed("sweep", "status", "mine")
    monkeypatch.setattr("lmkit.sweeps.status.code_sha256", lambda: "of later code")
    told = "3 come from code that has changed since"
    assert told in printed("sweep", "status", "mine")

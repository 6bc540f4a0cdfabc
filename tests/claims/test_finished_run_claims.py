"""What the manual promises of the commands on finished runs."""

import json
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


@pytest.mark.usefixtures("undrawn")
def test_commands_take_runs_in_the_same_words(printed, refused, tmp_path):
    assert "3 runs: page/index.html" in printed("report", "runs=mine", "out=page")
    assert "2 runs: page/index.html" in printed("report", "runs='runs head:softmax'", "out=page")
    assert "selects no run" in refused("report", "runs=nowhere")
    compared = printed("compare", "a='mine head:softmax'", "b='runs/toy_gss-*'", "out=c.json")
    assert "a: 2 runs" in compared
    assert "b: 1 run:" in compared
    assert json.loads((tmp_path / "c.json").read_text())["runs of a"]["test perplexity"] == 2
    assert "a=nowhere selects no run" in refused("compare", "a=nowhere", "b=runs")
    assert "none of the runs of runs" in refused("compare", "a='runs seed:9'", "b=runs")


def test_status_tells_which_code_has_changed_since(printed, monkeypatch):
    assert "code" not in printed("sweep", "status", "mine")
    monkeypatch.setattr("lmkit.sweeps.status.code_sha256", lambda: "of later code")
    told = "3 come from code that has changed since"
    assert told in printed("sweep", "status", "mine")

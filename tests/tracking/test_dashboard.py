"""A workspace draws what runs have, and is sent by the public interface of wandb-workspaces."""

import pytest
import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.tracking.dashboard import workspace
from lmkit.tracking.fields import result_fields, run_fields
from tests.tracking.conftest import CONFIG, NAMES


@pytest.fixture
def sweep(tmp_path) -> SweepFolder:
    lines = [[f"head.transform.k={k}", "head/mixture=none", "seed=1"] for k in (2, 3)]
    points = [Point(line[0], line, f"toy-{i}", "toy", 3, None) for i, line in enumerate(lines)]
    saved = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, points))
    saved.save()
    return saved


def test_panels_draw_fields_that_runs_have(finished):
    made = workspace("mine", ["head.transform.k", "head/mixture"], "us", "theirs")
    result = finished.read_result()
    fields = run_fields(CONFIG, NAMES) | result_fields(result.metrics, result.cost)
    panels = [panel for section in made.sections for panel in section.panels]
    scatters = [panel for panel in panels if isinstance(panel, wr.ScatterPlot)]
    options = [panel.x.name for panel in scatters if isinstance(panel.x, wr.Config)]
    assert options == ["head.transform.k"]
    drawn = {p.x.name for p in scatters if isinstance(p.x, wr.SummaryMetric)} | {"test_ppl"}
    (parallel,) = [p for p in panels if isinstance(p, wr.ParallelCoordinatesPlot)]
    drawn |= {c.metric.name for c in parallel.columns if isinstance(c.metric, wr.SummaryMetric)}
    assert {"press_rank", "effective_rank_0_001", "head"} < drawn
    assert drawn <= fields.keys()


def test_the_command_sends_the_sweeps_workspace(sweep, monkeypatch, lmkit):
    sent = []
    monkeypatch.setattr(ws.Workspace, "save", lambda self: sent.append(self))
    monkeypatch.setattr(ws.Workspace, "url", property(lambda self: "https://there"))
    assert lmkit("dashboard", str(sweep.path), "us/theirs") == "workspace: https://there\n"
    (made,) = sent
    assert (made.entity, made.project, made.name) == ("us", "theirs", "sweep mine")


@pytest.mark.parametrize(
    ("target", "message"),
    [("theirs", "ENTITY/PROJECT must be two names"), ("us/theirs", "it needs an account")],
)
def test_what_is_wrong_is_one_line(sweep, monkeypatch, refused, target, message):
    def rejects(self: ws.Workspace) -> None:
        raise wandb.Error("no\n key")

    monkeypatch.setattr(ws.Workspace, "save", rejects)
    assert message in refused("dashboard", str(sweep.path), target)

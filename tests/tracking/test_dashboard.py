"""What W&B draws: charts of stored spectra, and a workspace of what runs have, which is sent by the
public interface of wandb-workspaces.
"""

from pathlib import Path

import numpy as np
import pytest
import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from lmkit.runs.array_files import epoch_spectrum, write_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.tracking.charts import PLOTTED_EPOCHS, epoch_charts, result_fields, run_fields
from lmkit.tracking.dashboard import workspace
from tests.conftest import spectrum_measures
from tests.tracking.conftest import CONFIG, NAMES


@pytest.fixture
def sweep(tmp_path) -> SweepFolder:
    shared = ["head/mixture=none", "seed=1"]
    lines = [
        [f"+head.transform.k={k}", f"trigger={trigger}", *shared, f"sweep.trial={k}"]
        for k, trigger in ((2, "none"), (3, "at_epoch"))
    ]
    points = [Point(line[0], line, f"toy-{i}", "toy", 3, None) for i, line in enumerate(lines)]
    saved = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, points))
    saved.save()
    return saved


def options_drawn(made: ws.Workspace) -> list[str]:
    panels = [panel for section in made.sections for panel in section.panels]
    over = [panel.x for panel in panels if isinstance(panel, wr.ScatterPlot)]
    return [x.name for x in over if isinstance(x, wr.Config)]


def test_panels_draw_fields_that_runs_have(finished):
    made = workspace("mine", [], ["head.transform.k", "head/mixture"], "us", "theirs")
    result = finished.read_result()
    fields = run_fields(CONFIG, NAMES) | result_fields(result.metrics, result.cost)
    panels = [panel for section in made.sections for panel in section.panels]
    scatters = [panel for panel in panels if isinstance(panel, wr.ScatterPlot)]
    assert options_drawn(made) == ["head.transform.k"]
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
    assert options_drawn(made) == ["head.transform.k"]
    # not the group: another sweep may have trained some of them first
    assert str(made.runset_settings.filters) == "Metric(\"ID\") in ['toy-0', 'toy-1']"


@pytest.mark.parametrize(
    ("target", "message"),
    [("theirs", "ENTITY/PROJECT must be two names"), ("us/theirs", "it needs an account")],
)
def test_what_is_wrong_is_one_line(sweep, monkeypatch, refused, target, message):
    def rejects(self: ws.Workspace) -> None:
        raise wandb.Error("no\n key")

    monkeypatch.setattr(ws.Workspace, "save", rejects)
    assert message in refused("dashboard", str(sweep.path), target)


def test_few_epochs_are_shown_the_first_and_the_last_among_them(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for epoch in range(1, 31):
        path = epoch_spectrum(folder, epoch, "valid", "log_probs")
        write_spectrum(path, np.geomspace(1.0, 1e-6, 20), spectrum_measures(150, 200, epoch))
    table = epoch_charts(folder, "valid", "log_probs")["spectrum/valid_log_probs/table"]
    shown = [row[0] for row in table.data]
    assert len(shown) == PLOTTED_EPOCHS
    assert (shown[0], shown[-1]) == (1, 30)
    assert shown == sorted(set(shown))

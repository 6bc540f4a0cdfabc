"""A sweep's W&B workspace: checked offline, by building it and reading it back."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.workspaces import internal

from lmkit.cli import dashboard as command
from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.tracking import heat_map, publish
from lmkit.tracking.publish import read_workspace, send, write_workspace
from lmkit.tracking.summary import PlotAxis, result_fields, run_fields
from lmkit.tracking.workspace import workspace
from tests.tracking.conftest import CONFIG, NAMES

C = PlotAxis("head.transform.c", "head_transform_c", True)
K = PlotAxis("head.transform.k", "head_transform_k", True)
SEED, TRANSFORM = PlotAxis("seed", "seed", True), PlotAxis("head/transform", "head", False)
AXES = [C, K, SEED, TRANSFORM]


@pytest.fixture
def made() -> ws.Workspace:
    return workspace("gss_grid", AXES, "us", "lm")


def panels(shown: ws.Workspace, kind: type) -> list:
    return [p for section in shown.sections for p in section.panels if isinstance(p, kind)]


@pytest.fixture
def summary_fields(template: RunFolder) -> set[str]:
    """What a run of such a sweep has in its summary."""
    axes = [axis.option for axis in AXES]
    result = template.read_result()
    fields = result_fields(result.metrics, result.cost)
    return {*run_fields(CONFIG, NAMES, axes), *fields}


def test_panels_draw_fields_that_runs_have(made, summary_fields):
    drawn = {m.name for p in panels(made, wr.ScatterPlot) for m in (p.x, p.y)}
    (parallel,) = panels(made, wr.ParallelCoordinatesPlot)
    columns = {column.metric.name for column in parallel.columns}
    assert {"test_ppl", "press_rank", "effective_rank_0_001"} < drawn < summary_fields
    assert {"head", C.field, K.field, "press_rank", "valid_ppl", "test_ppl"} < columns
    assert columns < summary_fields
    metrics = {m for p in panels(made, wr.LinePlot) for m in p.y}
    assert {"valid/ppl", "train/ppl"} < metrics


def test_heat_maps_are_over_numbers_and_fill_all_that_the_chart_leaves_open(made, summary_fields):
    maps = [p for p in panels(made, wr.CustomChart) if p.chart_name.startswith("us/")]
    assert [p.chart_fields["value"] for p in maps] == ["test_ppl", "press_rank"]
    for panel in maps:
        assert {C.field, K.field} < set(panel.query["summary"]["keys"]) < summary_fields
        assert (panel.chart_fields["x"], panel.chart_fields["y"]) == (C.field, K.field)
        open_ones = set(re.findall(r"\$\{(\w+):(\w+)\}", json.dumps(heat_map.SPEC)))
        given = {("field", name) for name in panel.chart_fields}
        assert open_ones == given | {("string", name) for name in panel.chart_strings}
    few = workspace("seeds", [SEED, TRANSFORM], "us", "lm")
    assert not [p for p in panels(few, wr.CustomChart) if p.chart_name.startswith("us/")]


def test_what_is_read_back_is_what_was_written_each_time_the_same(made, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_workspace(first, made)
    write_workspace(second, workspace("gss_grid", AXES, "us", "lm"))
    assert first.read_bytes() == second.read_bytes()
    read_back = read_workspace(first)
    assert (read_back.entity, read_back.project, read_back.name) == ("us", "lm", "sweep gss_grid")
    assert read_back._to_model().model_dump_json() == made._to_model().model_dump_json()
    spec = json.loads(first.read_text())["workspace"]["spec"]
    (runs,) = spec["section"]["runSets"]
    (only,) = runs["filters"]["filters"]
    assert (only["key"], only["op"], only["value"]) == (
        {"section": "run", "name": "group"},
        "=",
        "gss_grid",
    )
    first.write_text("{}")
    with pytest.raises(UserError, match=r"first\.json is not a sweep's workspace"):
        read_workspace(first)


class FakeApi:
    """W&B's, as far as it is asked; a chart can be made once."""

    charts: list[dict]

    class client:  # noqa: N801
        app_url = "http://localhost"

    def create_custom_chart(self, **chart: object) -> None:
        if chart in self.charts:
            raise wandb.Error("it exists")
        self.charts.append(chart)


def test_sent_again_it_is_changed_and_not_doubled(made, tmp_path, monkeypatch):
    names, path = [], tmp_path / "workspace.json"
    FakeApi.charts = []

    def upsert(view: internal.View) -> dict:
        names.append((view.name, view.id))
        return {"upsertView": {"view": {"name": view.name, "id": "id-of-it"}}}

    monkeypatch.setattr(wandb, "Api", FakeApi)
    monkeypatch.setattr(internal, "upsert_view2", upsert)
    address = send(path, made)
    assert address.startswith("http://localhost/us/lm?nw=")
    write_workspace(path, workspace("gss_grid", AXES, "us", "lm"))
    assert send(path, workspace("gss_grid", AXES, "us", "lm")) == address
    assert names == [(names[0][0], ""), (names[0][0], "id-of-it")]
    (chart,) = FakeApi.charts
    assert f"us/{chart['name']}" in path.read_text()
    elsewhere = workspace("gss_grid", AXES, "us", "other")
    send(path, elsewhere)
    assert names[2][1] == ""  # another project's workspace is another one


def test_without_an_account_it_says_so(made, tmp_path, monkeypatch):
    def refuse() -> None:
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(publish.wandb, "Api", refuse)
    with pytest.raises(UserError, match=r"No API key configured.*wandb login"):
        send(tmp_path / "workspace.json", made)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_into_the_folder_of_the_sweep(sweep, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lmkit dashboard", str(sweep.path)])
    command.main()
    assert capsys.readouterr().out.split()[-1] == str(sweep.path / "workspace.json")
    read_back = read_workspace(sweep.path / "workspace.json")
    assert (read_back.entity, read_back.project) == (command.UNKNOWN, "theirs")
    (parallel,) = panels(read_back, wr.ParallelCoordinatesPlot)
    assert K.field in {column.metric.name for column in parallel.columns}


@pytest.mark.parametrize(
    ("module", "line", "message"),
    [
        ("dashboard", "mime", "mime is not a sweep"),
        ("dashboard", "{sweep} project", "ENTITY/PROJECT must be two names"),
        ("dashboard", "{sweep} online=true", "online=true needs a destination"),
        ("sweep", "sync mime", "mime is not a sweep"),
    ],
)
def test_arguments_are_checked_before_anything_slow_is_imported(sweep, module, line, message):
    arguments = line.format(sweep=sweep.path).split()
    program = (
        f"import sys\nfrom lmkit.cli.{module} import main\nsys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\n"
        "finally:\n    print(sys.modules.keys() & {'torch', 'wandb', 'numpy', 'wandb_workspaces'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert done.stdout.strip() == "set()"

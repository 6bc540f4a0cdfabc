"""Which finished runs a user means."""

from pathlib import Path
from typing import Any

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder, read_finished
from lmkit.runs.selection import Selection, select_folders, select_runs
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder


def labels(selection: Selection) -> list[str]:
    """`gss 1` of the run of head gss and seed 1."""
    return sorted(f"{run.names.family} {run.settings['seed']}" for run in selection.runs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, make_run) -> Path:
    """Runs of two heads, a damaged and an unfinished one, and a sweep of two with one unstarted."""
    root = tmp_path_factory.mktemp("all") / "runs"
    for seed in (1, 2):
        softmax = make_run(root, seed, name="penn_softmax")
        make_run(root, seed, transform="gss", name="penn_gss")
    make_run(root, 1, transform="gss", mixture="softmaxes", name="wt2_mos_gss")
    (make_run(root, 8, name="penn_softmax") / "result.json").write_text("{")
    (make_run(root, 9, name="penn_softmax") / "result.json").unlink()
    names = (softmax.name, "penn_softmax-000000000000")
    points = [Point(name, [], name, "penn_softmax", 1, None) for name in names]
    SweepFolder.of(Manifest("two", str(root), "/", 0, points)).save()
    return root


def filled(value: object, runs: Path) -> Any:
    """A value with the folder of runs, or the name of one, in its place."""
    if isinstance(value, list):
        return [filled(each, runs) for each in value]
    (mos,) = runs.glob("wt2_*")
    return value.format(runs, mos=mos.name) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("{}", ["gss 1", "gss 2", "mos_gss 1", "softmax 1", "softmax 2"]),
        ("{}/sweeps/two", ["softmax 2"]),
        ("{}/sweeps/*", ["softmax 2"]),
        ("two seed:2", ["softmax 2"]),
        ("{} head:gss", ["gss 1", "gss 2"]),
        ("{} head:MoS + GSS", ["mos_gss 1"]),
        ("{} name:penn_*", ["gss 1", "gss 2", "softmax 1", "softmax 2"]),
        ("{} name:penn_gss seed=2", ["gss 2"]),
        ("{} head.transform.c:-1.5 seed:1", ["gss 1", "mos_gss 1"]),
        (["{}/wt2_*", "two"], ["mos_gss 1", "softmax 2"]),
        (["{} head:gss", "{} seed:1 head:gss"], ["gss 1", "gss 2"]),
        ("{mos}", ["mos_gss 1"]),
        (["{}/{mos}", "{}/{mos}/../wt2_*"], ["mos_gss 1"]),
    ],
)
def test_every_way_to_say_runs(runs, value, meant):
    assert labels(select_runs("run", filled(value, runs), str(runs))) == meant


def test_what_does_not_count_is_left_out_with_the_reason(runs):
    reasons = select_runs("run", str(runs)).left_out.values()
    assert sorted(reason.partition(":")[0] for reason in reasons) == [
        "it has not finished",
        "result.json is damaged",
    ]
    assert list(select_runs("run", "two", str(runs)).left_out.items()) == [
        ("penn_softmax-000000000000", "it has not been started")
    ]


def test_a_run_whose_folder_is_closed_is_left_out(runs, monkeypatch):
    state = RunFolder.state

    def closed(self: RunFolder) -> str:
        if self.path.name.startswith("wt2"):
            raise PermissionError(13, "Permission denied", str(self.result))
        return state(self)

    is_file = Path.is_file

    def is_open(self: Path) -> bool:
        if self.parent.name.startswith("wt2"):
            raise PermissionError(13, "Permission denied", str(self))
        return is_file(self)

    monkeypatch.setattr(RunFolder, "state", closed)
    monkeypatch.setattr(Path, "is_file", is_open)
    for place in (str(runs), f"{runs}/*"):
        selection = select_runs("run", place)
        assert labels(selection) == ["gss 1", "gss 2", "softmax 1", "softmax 2"]
        assert "its folder cannot be read: Permission denied" in selection.left_out.values()


@pytest.mark.parametrize(("name", "filters"), [("my runs seed:2", ""), ("my runs", " seed:1")])
def test_a_folder_whose_name_holds_spaces(tmp_path, make_run, name, filters):
    make_run(tmp_path / name, 1)
    assert len(select_runs("run", f"{tmp_path / name}{filters}").runs) == 1


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("tow", r"b=tow selects no run: .*did you mean two\?"),
        ("", "b must name runs"),
        ("{} state:damaged", "damaged runs are shown where no filter is given"),
        ("{} seed:77", r"none of the runs of .*: there is seed:1, seed:2, seed:8, seed:9$"),
        ("{} head:softmaxes", "there is head:gss, head:mos_gss, head:softmax$"),
        ("{} head:gss seed:3", "there is seed:1, seed:2 with head:gss$"),
        ("{} trunk:AWD-LSTM", r"there is trunk\._target_:lmkit\.trunk\.awd_lstm\.AWDLSTM$"),
        ("{} head.depth:3", r"none has the option head\.depth$"),
        ("{}/../rnus", r"did you mean .*/runs\?"),
        ("{} seed:[", "seed:.* is not option:value"),
        ("{}/sweeps", "there is none in"),
        ("{} optimizer.lr:2e1 seed:true", r"there is seed:1, seed:2, seed:8, seed:9 with"),
        ("{} data.root:2024-13-45", "data.root:2024-13-45 is not option:value"),
        ("{} seed:1 seed:2", "there is seed:1 with seed:1$"),
        ("{}/" + 300 * "x", "selects no run"),
        ("{} seed:9", "selects no finished run: penn_softmax-.*: it has not finished$"),
        ("{} seed:8", "selects no finished run: penn_softmax-.*: result.json is damaged"),
        *((value, r"^b must name runs") for value in (None, [], [1], [" "])),
        (["{}", "nowhere"], r"^b=nowhere selects no run"),
    ],
)
def test_what_means_no_run_is_one_line_naming_the_option(runs, value, error):
    with pytest.raises(UserError, match=error) as raised:
        select_runs("b", filled(value, runs), str(runs))
    assert str(raised.value).startswith("b")
    assert "\n" not in str(raised.value)


def test_a_filter_takes_the_value_that_its_message_offers(tmp_path, make_run):
    make_run(tmp_path, 1, options={"optimizer.weight_decay": 1e-6, "patience": None})
    offered = set()
    for option in ("optimizer.weight_decay", "patience", "optimizer._target_", "trunk.tied"):
        with pytest.raises(UserError) as raised:
            select_runs("run", f"{tmp_path} {option}:-77")
        offered.add(str(raised.value).partition("there is ")[2])
    assert {"optimizer.weight_decay:1.0e-06", "patience:null"} < offered
    for each in [*offered, "optimizer.weight_decay:1e-6", "optimizer.weight_decay:0.000001"]:
        assert len(select_runs("run", f"{tmp_path} {each}").runs) == 1


@pytest.fixture
def models(tmp_path) -> Path:
    """A folder with two pretrained models, a figure, and a folder without measurements."""
    root = tmp_path / "pretrained"
    for name in ("gpt2", "mine@checkpoint-9", "mine@checkpoint-10"):
        (root / name / "analysis").mkdir(parents=True)
        (root / name / "analysis" / "rank_text_log_probs_50.json").write_text("{}")
    (root / "empty" / "analysis").mkdir(parents=True)
    (root / "spectra.svg").touch()
    return root


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("{}", ["gpt2", "mine@checkpoint-9", "mine@checkpoint-10"]),  # by their steps
        ("{}/gpt2", ["gpt2"]),
        ("{}/mine@*-9", ["mine@checkpoint-9"]),
        (["{}/*", "{}"], ["gpt2", "mine@checkpoint-9", "mine@checkpoint-10"]),
        (["{}/gpt2", "{runs}/wt2_*"], ["gpt2", "mos_gss 1"]),
        (["{}/gpt2", "{runs} head:mos_gss"], ["gpt2", "mos_gss 1"]),
    ],
)
def test_pretrained_models_count_where_they_are_asked_for(models, runs, value, meant):
    values = value if isinstance(value, list) else [value]
    places = [each.format(models, runs=runs) for each in values]
    folders, found, left_out = select_folders("runs", places, with_models=True)
    selection = Selection([read_finished(folder) for folder in folders], left_out)
    assert [folder.path.name for folder in found] + labels(selection) == meant
    assert left_out == {}


@pytest.mark.parametrize("place", ["{}", "{} head:gss", "{}/empty"])
def test_pretrained_models_are_no_runs_and_pass_no_filter(models, place):
    with pytest.raises(UserError, match="selects no run"):
        select_folders("runs", place.format(models), with_models=place != "{}")

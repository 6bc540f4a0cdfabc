"""What the manual promises of sweeps, as typed."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmkit.runs.folder import RunFolder
from lmkit.runs.sweep_folder import Manifest, SweepFolder
from lmkit.sweeps.axes import sample
from lmkit.sweeps.local import Packed
from tests.tiny import TINY, without

SWEEP = ("--multirun", *TINY, "sweep.name=mine")


@pytest.fixture
def planned(printed: Callable[..., str]) -> Callable[..., tuple[SweepFolder, str]]:
    """A sweep that waits for workers, whose points can be trained one by one; what it prints."""

    def plan(*overrides: str) -> tuple[SweepFolder, str]:
        told = printed("train", *SWEEP, "hydra/launcher=workers", *overrides)
        return SweepFolder.find("mine", "runs"), told

    return plan


def test_a_dry_run_shows_the_points_and_writes_nothing(printed, tmp_path):
    shown = printed("train", *SWEEP, "seed=1,2", "head/transform=gss", "dry_run=true")
    assert "seed=1 │ new" in shown
    assert "2 runs: 2 new" in shown
    assert "no time estimate" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_user_that_cannot_be_read_ends_no_sweep(printed, tmp_path, monkeypatch):
    def refuse(*_: object) -> bool:
        raise PermissionError("Permission denied")

    (tmp_path / "runs" / "toy-000000000000").mkdir(parents=True)
    monkeypatch.setattr(RunFolder, "finished_within", refuse)
    assert "2 runs: 2 new" in printed("train", *SWEEP, "seed=1,2", "dry_run=true")


def test_a_value_that_only_the_points_have_may_be_quoted_or_null(printed, tmp_path):
    (text := tmp_path / "jürgen.txt").write_text("a b c\n" * 400)
    line = ("data=text", f"data.root={text}", "patience=null", "head/transform=gss", "seed=1,2")
    line += ("runs_dir=5", "name=7")  # numbers that are texts
    assert "2 runs: 2 new" in printed("train", "--multirun", *line, "dry_run=true")


@pytest.mark.parametrize("option", ["dry_run=true", "sweep.sample=3"])
def test_what_only_a_sweep_heeds_is_refused_elsewhere(refused, option):
    error = refused("train", *TINY, option)
    assert f"{option} is for sweeps" in error
    assert "lmkit describe shows what a single run would train" in error
    elsewhere = refused("train", *SWEEP, "hydra/sweeper=basic", "seed=1,2", option)
    assert f"{option} does not go with hydra/sweeper=basic" in elsewhere


@pytest.mark.slow
def test_points_know_their_sweep_and_carry_the_name_of_their_head(planned, lmkit, runs, printed):
    """The line of a point is one that could be typed: the run is the same."""
    sweep, _ = planned("head/transform=gss,identity", "seed=3")
    assert [point.run.rpartition("-")[0] for point in sweep.manifest.points] == ["toy_gss", "toy"]
    for point in sweep.manifest.points:
        assert point.overrides[-1] == "sweep.name=mine"
    lmkit("train", *TINY, "seed=3", "head/transform=gss")
    assert [run.path.name for run in runs()] == [sweep.manifest.points[0].run]
    assert "2 runs: 1 finished, 1 new" in printed("sweep", "status", "mine")
    lmkit("sweep", "work", "mine")  # trains the other, in a process of its own
    assert "2 runs: 2 finished" in printed("sweep", "status", "mine")
    assert {run.path.name for run in runs()} == {point.run for point in sweep.manifest.points}
    # its log in the sweep's folder has the lines of its own
    other = sweep.manifest.points[1]
    text = sweep.run_folder(other).log.read_text()
    assert "epoch 2 of 2: train perplexity" in text
    assert set(text.splitlines()) <= set(sweep.log(other).read_text().splitlines())


@pytest.mark.slow
def test_unfinished_points_of_a_sweep_are_named_and_left_out(planned, trained, refused, printed):
    sweep, _ = planned("seed=1,2")
    first, second = (point.run for point in sweep.manifest.points)
    message = refused("logits", "run=mine")
    assert f"{min(first, second)}: it has not been started (and 1 more)" in message
    shutil.copytree(trained / first, Path("runs") / first)
    left_out = f"left out: {second}: it has not been started"
    measured = printed("logits", "run=mine", "contexts=50")
    assert left_out in measured
    assert f"{first}/analysis/logits.json" in measured
    assert left_out in printed("report", "runs=mine")


def test_two_axes_that_mean_one_run_are_one_point(planned):
    sweep, told = planned("trainer.log_every_n_steps=10,20")
    assert len(sweep.manifest.points) == 1
    assert "1 of them is the same as another of them" in told


@pytest.mark.parametrize(
    ("axes", "budget", "are"),
    [
        (["max_epochs=5,null,10"], (None, None), "2 of them are"),
        (["patience=null,3"], (2, None), "1 of them is"),
        (["max_epochs=5,10", "patience=3,4"], (10, 4), "3 of them are"),
    ],
)
def test_of_points_that_are_one_run_the_largest_budget_is_trained(planned, axes, budget, are):
    sweep, told = planned(*axes)
    (point,) = sweep.manifest.points
    assert point.budget == (*budget, 0.0)
    assert f"max_epochs={budget[0] or 'null'}" in point.overrides
    assert f"{are} the same as another of them but for a smaller budget, and" in told


TOLD = """
from hydra.experimental.callback import Callback

class Told(Callback):
    def on_job_end(self, config, job_return, **rest):
        with open("told.txt", "a") as file:
            print(job_return.return_value, file=file)
"""


@pytest.mark.slow
def test_lmkits_launchers_go_with_sweepers_of_hydras(lmkit, runs, refused):
    packed = ("hydra/sweeper=basic", "hydra/launcher=packed", "hydra.launcher.runs=2")
    bad = ("trunk.num_layers=2,0", *packed)
    assert "trunk.num_layers must be" in refused("train", *SWEEP, *bad)
    assert not runs()
    # the second batch asks for the first seed again
    lmkit("train", *SWEEP, "seed=1,2,1", *packed, "hydra.sweeper.max_batch_size=2")
    assert [run.state() for run in runs()] == ["finished", "finished"]
    points = SweepFolder.find("mine", "runs").manifest.points
    assert sorted(point.run for point in points) == sorted(run.path.name for run in runs())


def test_a_sweeper_of_hydras_is_told_the_valid_perplexity(lmkit, run, tmp_path):
    (tmp_path / "mine.py").write_text(TOLD)
    own = "+hydra.callbacks.told._target_=mine.Told"
    hydras = ("hydra/sweeper=basic", "hydra/launcher=basic", own)
    lmkit("train", "--multirun", *TINY, "seed=1", *hydras)
    told = float((tmp_path / "told.txt").read_text())
    assert told == run().read_result().metrics["valid_ppl"]


def test_a_point_that_fails_under_a_launcher_of_hydras_ends_no_other(lmkit, capsys):
    with pytest.raises(SystemExit, match=r"^1$"):
        lmkit("train", *SWEEP, "optimizer.lr=1e30,20", "hydra/launcher=basic")
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(r"failed after 1 attempt: optimizer.lr=1e\+30: .* is not finite", told)
    with pytest.raises(SystemExit, match=r"^1$"):
        lmkit("sweep", "status", "mine")
    assert "1 finished, 1 failed" in " ".join(capsys.readouterr().out.split())


def test_what_is_given_up_here_has_failed_unless_others_finish_it(
    lmkit, trained, tmp_path, monkeypatch
):
    def give_up(self, sweep, points):
        if others_train:
            for point in points:
                shutil.copytree(trained / point.run, tmp_path / "runs" / point.run)
        return {point.run: "it may not be claimed" for point in points}

    monkeypatch.setattr(Packed, "__call__", give_up)
    others_train = False
    with pytest.raises(SystemExit, match=r"^1$"):
        lmkit("train", *SWEEP, "seed=1,2")
    others_train = True
    lmkit("train", *SWEEP, "seed=1,2")


def test_axes_may_be_the_files_of_a_group(printed, refused):
    shown = printed("train", *SWEEP, "head/transform=glob(g*)", "dry_run=true")
    assert "head/transform=gss │ new" in shown
    expected = "head/transform=glob(x*): no file of head/transform has a name like that"
    assert refused("train", *SWEEP, "head/transform=glob(x*)") == expected


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("threads=1,two", r"point 2 \(threads=two\): threads: Value 'two' of type 'str' could not"),
        ("+thread=1,2", r"point 1 \(.*\): there is no option thread \(did you mean threads\?\)"),
        ("head/transform=gss,gsss", r"point 2 \(head/transform=gsss\): .*did you mean gss"),
        ("trunk.input_dropot=0.1,0.2", r"point 1 \(.*\): .*\(did you mean trunk.input_dropout\?\)"),
        ("optimizer.lr=5,-1", r"point 2 \(optimizer.lr=-1\): "),
        ("stopping.min_delta=0,-1", r"point 2 \(stopping.min_delta=-1\): "),
        ("windows.valid_batch_size=5,0", r"point 2 \(windows.valid_batch_size=0\): "),
        ("module=language_model,dialogue", r"point 2 \(module=dialogue\): .*data=toy goes with"),
        ("sweep.sample=1,2", "sweep.sample=1,2: a sweep takes a single value"),
        ("sweep.name=../x", "sweep.name must be a letter"),
        ("runs_dir=a,b", "runs_dir must be the same for all points of a sweep"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_point(refused, tmp_path, axis, expected):
    assert re.match(expected, refused("train", *SWEEP, axis))
    assert not list(tmp_path.glob("runs/sweeps/*/manifest.json"))


@pytest.mark.usefixtures("three")
def test_a_bad_value_names_its_point_behind_runs_that_have_finished(refused):
    line = ("seed=1", "trunk.num_layers=2,0")
    assert re.match(r"point 2 \(trunk.num_layers=0\)", refused("train", *SWEEP, *line))


def test_options_of_a_sweep_decide_its_points_and_attempts(planned):
    for seed in (1, 2):
        options = ("sweep.sample=3", f"sweep.sample_seed={seed}", "sweep.retries=0")
        sweep, _ = planned("seed=range(1,9)", *options)
        expected = [f"seed={1 + index}" for index in sample(8, 3, seed)]
        assert [point.label for point in sweep.manifest.points] == expected
        assert sweep.manifest.retries == 0


@pytest.mark.usefixtures("three")
def test_a_sweep_looks_for_its_runs_on_the_kind_of_device_that_its_launcher_gives(printed):
    """Where one has a GPU and this machine has none, their names are others."""
    line = ("train", *SWEEP, "seed=1,2", "dry_run=true", "hydra/launcher=slurm")
    for gpus in (0, 1):
        state = "finished" if bool(gpus) == torch.cuda.is_available() else "new"
        assert f"2 runs: 2 {state}" in printed(*line, f"hydra.launcher.gpus={gpus}")


def test_a_bad_value_names_its_point_beside_runs_of_its_name_too(refused, tmp_path):
    (tmp_path / "runs" / "toy-0").mkdir(parents=True)
    assert re.match(r"point 2 \(keep=bset\)", refused("train", *SWEEP, "keep=best,bset"))


def test_a_sweep_file_is_shown_with_a_value_beside_it(printed):
    line = ("multirun_sweeps=gss_grid_penn", "head.transform.k=2.5", "head/transform=gss")
    assert "k: 2.5" in printed("train", *line, "--cfg", "job")


def written(folder: Path, file: str, content: str) -> None:
    """A configuration of the user's own."""
    path = folder / "configs" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


GLOBAL = "# @package _global_\n"
SEEDS = 'hydra:\n  mode: MULTIRUN\n  sweeper:\n    params: {seed: "1,2"}\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (GLOBAL + "hydra:\n  mode: MULTIRUN\n", "no points: give it hydra.sweeper.params"),
        (SEEDS, "the file of multirun_sweeps=mine must begin with the line # @package _global_"),
        (GLOBAL + SEEDS + "max_epochs: 3\n", "max_epochs must stand under hydra.sweeper.params"),
        (
            GLOBAL + "defaults:\n- override /head/transform: gss\n" + SEEDS,
            "mine.yaml: the choice of head/transform must stand under hydra.sweeper.params, as "
            "head/transform: gss",
        ),
        (GLOBAL + SEEDS.replace("params", "part"), "unexpected keyword argument 'part'"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused_with_the_line_to_add(
    refused, tmp_path, content, expected
):
    written(tmp_path, "multirun_sweeps/mine.yaml", content)
    assert expected in refused("train", "--config-dir", "configs", "multirun_sweeps=mine", *TINY)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (
            "{max_epochs: 5, patience: 10}, {max_epochs: 10, patience: 5}",
            "max_epochs=5 patience=10 and max_epochs=10 patience=5 are one run: "
            "give max_epochs or patience one value",
        ),
        ("{keep: 'all,best'}", "keep=all and keep=best are one run: give keep one value"),
    ],
)
def test_one_run_with_options_of_which_none_includes_the_others_is_refused(
    refused, tmp_path, axes, expected
):
    content = GLOBAL + SEEDS.replace('params: {seed: "1,2"}', f"parts: [{axes}]")
    written(tmp_path, "multirun_sweeps/mine.yaml", content)
    line = ("train", "--config-dir", "configs", "multirun_sweeps=mine", *without("max_epochs="))
    assert refused(*line) == expected


def test_a_point_on_a_fixed_trunk_is_of_its_experiment(printed, three, tmp_path):
    content = (
        f'hydra: {{sweeper: {{params: {{trunk: fixed, trunk.of: {three[0].path}, seed: "1,2"}}}}}}'
    )
    written(tmp_path, "multirun_sweeps/heads.yaml", GLOBAL + content)
    line = ("--config-dir", "configs", "multirun_sweeps=heads", "logger=csv", "dry_run=true")
    assert "2 runs: 2 new" in printed("train", *line)


@pytest.mark.slow
def test_a_file_of_ones_own_is_a_sweep_by_its_name(printed, tmp_path):
    """Also one whose points have callbacks of the user's, without a progress bar."""
    written(
        tmp_path,
        "callbacks/few.yaml",
        "checkpoints: {_target_: lmkit.training.callbacks.epoch_end.EpochEnd, every_minutes: 10}\n",
    )
    content = 'hydra: {sweeper: {params: {seed: "1,2", callbacks: few}}}'
    written(tmp_path, "multirun_sweeps/two_seeds.yaml", GLOBAL + content)
    line = ("--config-dir", "configs", "multirun_sweeps=two_seeds", *without("callbacks."))
    told = printed("train", *line, "hydra/launcher=workers")
    manifest = SweepFolder.find("two_seeds", "runs").manifest
    assert manifest.config_arguments == ["--config-dir", str(tmp_path / "configs")]
    assert [point.label for point in manifest.points] == ["seed=1", "seed=2"]
    assert f"lmkit sweep work {tmp_path}/runs/sweeps/two_seeds" in told
    assert not any("progress_bar" in each for each in manifest.points[0].overrides)
    sample = ("seed=2,3,4", "sweep.sample=2", "dry_run=true")
    assert "2 runs: 2 new" in printed("train", *line, *sample)


def test_a_sweep_without_points_is_one_and_its_folder_may_have_any_letters(
    lmkit, printed, refused, tmp_path
):
    SweepFolder.of(Manifest("mine", "r ü", str(tmp_path), 0, [])).save()
    for line in (("status", "mine", "runs_dir=r ü"), ("runs_dir=r ü", "status", "mine")):
        assert "0 runs" in printed("sweep", *line)
    assert refused("runs", "mine", "runs_dir=r ü").endswith("that sweep has no points")

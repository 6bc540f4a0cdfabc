"""What the manual promises of space on the disk: `keep`, `lmkit clean`, `lmkit sweep status`."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from rich.filesize import decimal as data_size

import lmkit as package
from lmkit.errors.user_error import UserError
from lmkit.runs.checksums import checked
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from tests.faults.comparison import contents, runs_in
from tests.tiny import TINY

LINE = ("train", *TINY, "seed=1")


def checkpoints(run: RunFolder) -> set[str]:
    return set(os.listdir(run.checkpoints))


def blocks(path: Path) -> int:
    """Bytes on the disk of a file, or of those in a folder, each once."""
    stats = [each.stat() for each in (path, *path.rglob("*")) if each.is_file()]
    return sum({stat.st_ino: 512 * stat.st_blocks for stat in stats}.values())


def test_a_run_keeps_the_checkpoints_that_its_line_says(lmkit, refused, three, printed):
    lmkit(*LINE, "keep=best", "runs_dir=few")
    (run,) = runs_in(Path("few"))
    same, line = three[0], (*LINE, "runs_dir=few")
    assert run.path.name == same.path.name
    assert run.read_result().metrics == same.read_result().metrics
    assert checkpoints(run) == {"best.ckpt"}
    assert checkpoints(same) == {"best.ckpt", "last.ckpt"}
    lmkit("evaluate", f"run={run.path}", "split=valid")
    before = contents(run.path)
    message = refused(*line, "max_epochs=3")
    assert "cannot resume: the run has kept only best.ckpt (keep=best)" in message
    planned = refused(*line, "max_epochs=3", "--multirun", "dry_run=true")
    assert re.match(r"point 1 .*cannot resume: the run has kept only best\.ckpt", planned)
    assert contents(run.path) == before
    way = re.search(r"resume it from epoch \d, its best: (cp .*), then the same command", message)
    subprocess.run(shlex.split(way[1]), check=True)
    lmkit(*line, "max_epochs=3")
    lmkit(*LINE, "max_epochs=3")
    assert run.read_result().metrics == same.read_result().metrics
    run.last.unlink()
    before = contents(run.path)
    said = printed(*line, "max_epochs=3", "keep=none")
    assert "keep=none: best.ckpt removed" in said
    assert "already finished" in said
    assert checkpoints(run) == set()
    assert contents(run.path).keys() == before.keys() - {run.best}
    assert "already finished" in printed(*line, "max_epochs=3")
    assert "keep must be one of all, best, none" in refused(*line, "keep=last")


def test_what_needs_a_checkpoint_says_which_line_trains_the_run_anew(lmkit, refused, three):
    run = three[0]
    metrics = run.read_result().metrics
    lmkit(*LINE, "keep=none")
    where = os.path.relpath(run.path)
    for command in (
        ("evaluate", f"run={where}"),
        ("evaluate", f"run={where}", "checkpoint=last"),
        ("finetune", f"run={where}", "logger=csv"),
    ):
        message = refused(*command)
        assert "the run has no checkpoint, as after keep=none; to train it again: " in message
    with pytest.raises(UserError, match=r"best\.ckpt is needed here, .* keep=none; to train"):
        package.load(where)
    remove, line = re.search(r"again: (rm -r .*), then lmkit (train .*)", message).groups()
    assert remove == f"rm -r {where}"
    shutil.rmtree(run.path)
    lmkit(*shlex.split(line))
    assert run.read_result().metrics == metrics
    assert checkpoints(run) == {"best.ckpt", "last.ckpt"}


def test_a_sweep_applies_it_to_what_is_finished(lmkit, three):
    softmax = [each for each in three if each.path.name.startswith("toy-")]
    points = [Point(each.path.name, [], each.path.name, "toy", 2, None) for each in softmax]
    SweepFolder.of(Manifest("mine", "runs", str(Path.cwd()), 0, points)).save()
    lmkit("train", "--multirun", *TINY, "sweep.name=mine", "seed=1,2", "keep=none")
    assert [checkpoints(each) for each in softmax] == [set(), set()]


def test_clean_shows_what_it_frees_and_frees_that(three, tmp_path, printed):
    runs = tmp_path / "runs"
    three[0].best.unlink()
    os.link(three[0].last, three[0].best)  # as of a run whose last epoch was its best
    (three[0].path / ".ab.tmp").mkdir()
    (three[0].path / ".ab.tmp" / "record").write_bytes(bytes(200_000))
    before, rows = contents(runs), printed("runs", "csv=true")
    shown = printed("clean", "runs")
    assert contents(runs) == before
    assert f"3 finished runs: {data_size(blocks(runs))} on disk, of which keep=best would" in shown
    for keep, kept in (("best", {"best.ckpt"}), ("none", set())):
        (planned,) = re.findall(
            r"would free (\S+ \wB); dry_run=false removes", printed("clean", "runs", f"keep={keep}")
        )
        taken = blocks(runs)
        done = printed("clean", "runs", f"keep={keep}", "dry_run=false")
        freed, left = taken - blocks(runs), data_size(blocks(runs))
        assert freed > 0
        assert data_size(freed) == planned
        assert f"keep={keep} has freed {planned}, {left} left" in done
        assert [checkpoints(each) for each in three] == [kept] * 3
    assert printed("runs", "csv=true") == rows
    gone = {each.checkpoints / name for each in three for name in ("best.ckpt", "last.ckpt")}
    gone |= {three[0].path / ".ab.tmp" / "record"}
    after = contents(runs)
    assert after == {path: content for path, content in before.items() if path not in gone}


def test_clean_leaves_what_is_not_finished_or_at_work(three, tmp_path, printed, refused):
    unfinished, held, further = three
    unfinished.result.unlink()
    asked = Point("epochs", [], further.path.name, "toy", 9, None)
    SweepFolder.of(Manifest("further", "runs", str(tmp_path), 0, [asked])).save()
    litter = [run.path / ".result.json.ab.tmp" for run in (unfinished, held)]
    for path in litter:
        path.write_text("being written")
    (held.path / ".wandb-ab.tmp" / "wandb").mkdir(parents=True)
    before = contents(tmp_path / "runs")
    with RunLock(held.lock):
        shown = printed("clean", "runs", "keep=none", "dry_run=false")
        assert contents(tmp_path / "runs").keys() == {*before, held.lock}
    for reason in ("has not finished", "a process is using it", "a sweep asks for more epochs"):
        assert re.search(rf"left as it is: 1 run: [\w ]*{reason}", shown)
    printed("clean", held.path.name, "keep=all", "dry_run=false")
    assert not list(held.path.glob(".wandb-*"))
    assert contents(tmp_path / "runs").keys() == before.keys() - {litter[1]}


def test_clean_leaves_what_a_sweep_trains_further_wherever_it_lies(three, tmp_path, printed):
    *_, further = three
    asked = Point("epochs", [], further.path.name, "toy", 9, None)
    sweep = SweepFolder.of(Manifest("further", "runs", str(tmp_path), 0, [asked]))
    sweep.save()
    further.path.rename(tmp_path / "on_another_disk")
    further.path.symlink_to(tmp_path / "on_another_disk")
    manifest = sweep.path / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole[:-9])
    shown = printed("clean", "runs", "keep=none", "dry_run=false")
    assert re.search(rf"left as it is: 3 runs: .*{manifest.name} is damaged", shown)
    assert all(map(checkpoints, three))
    manifest.write_text(whole)
    shown = printed("clean", "runs", "keep=none", "dry_run=false")
    assert "left as it is: 1 run: a sweep asks for more epochs of it" in shown
    assert [bool(checkpoints(each)) for each in three] == [False, False, True]


@pytest.mark.parametrize("file", ["metrics.csv", "config.yaml"])
def test_clean_leaves_what_a_damaged_file_is_restored_from(lmkit, three, capsys, file):
    damaged, options = three[0], three[0].read_config()["command"].split()[1:]
    whole = (damaged.path / file).read_bytes()
    (damaged.path / file).write_bytes(whole[:-20])
    with pytest.raises(SystemExit, match="1"):
        lmkit("clean", "runs", "keep=none", "dry_run=false")
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"left as it is: {damaged.path.name}: .*{file} is damaged", said)
    assert [bool(checkpoints(each)) for each in three] == [True, False, False]
    lmkit(*options, "keep=best")
    assert (damaged.path / file).read_bytes() == whole
    assert checkpoints(damaged) == {"best.ckpt"}


def test_clean_leaves_what_others_go_on_from(three, tmp_path, printed):
    start, trunk, later = three
    of_each = {
        "toy_finetune": {"finetuned_from": {"folder": str(start.path)}},
        "head": {"data": {"folder": f"runs/{trunk.path.name}", "weights_sha256": "ab"}},
        "mine_finetune": {"seed": 1, "data": {}},  # named alike, and finetunes nothing
    }
    for name, config in of_each.items():
        other = RunFolder(tmp_path / f"runs/{name}-0123456789ab")
        other.path.mkdir()
        other.config.write_bytes(checked(yaml.safe_dump(config).encode()))
    assert "keep=none: last.ckpt removed" in printed(*LINE, "keep=none")  # of the first
    trunk.path.rename(tmp_path / "on_another_disk")
    trunk.path.symlink_to(tmp_path / "on_another_disk")
    whole = other.config.read_bytes()
    other.config.write_bytes(whole[:-9])  # training it again mends that
    shown = printed("clean", "runs", "keep=none", "dry_run=false")
    assert "best.ckpt stays: 2 runs: a run still to be trained finetunes it, or has it" in shown
    assert re.search(r"best.ckpt stays: 1 run: .*config.yaml is damaged", shown)
    other.config.write_bytes(whole)
    for value in (f"'runs/{later.path.name}'", "runs name:toy_gss"):
        point = Point("a", [f"trunk.of={value}"], "new-0123456789ab", "e", 1, None)
        sweep = SweepFolder.of(Manifest("heads", "runs", str(tmp_path), 0, [point]))
        sweep.save()  # and no worker has begun
        assert "best.ckpt stays: 3 runs" in printed("clean", "runs", "keep=none", "dry_run=true")
    shutil.rmtree(sweep.path)
    shown = printed("clean", "runs", "keep=none", "dry_run=false")
    assert "best.ckpt stays: 2 runs: a run still to be trained finetunes it, or has it" in shown
    best = {"best.ckpt"}
    assert [checkpoints(each) for each in three] == [best, best, set()]

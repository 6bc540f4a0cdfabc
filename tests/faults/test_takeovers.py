"""A process that lost its lock while it was suspended changes no file of the run.

One that is killed while it removes checkpoints has finished; the same line removes the rest.
"""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError, end_with
from lmkit.experiment.run import run
from lmkit.runs import atomic
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import HELD, LockHeld, RunLock
from lmkit.runs.retention import tidy_all
from tests import forked, tiny
from tests.faults.comparison import assert_same_run, runs_in
from tests.waiting import state_of, wait_for

TINY = [*tiny.SMALL, "data.num_words=40", "callbacks.spectrum=null", "max_epochs=3"]
TINY += ["trainer.log_every_n_steps=2"]
LISTED = {  # by docs/runs.md, of a run with a fixed transform
    *("config.yaml", "identity.json", "metrics.csv", "result.json", "train.log"),
    *("curves.svg", "spectrum.svg"),
    *("checkpoints/best.ckpt", "checkpoints/last.ckpt", "spectra/test_log_probs.npz"),
}


def train(config: dict, attempt: int, stop_before: tuple[str, str] | None = None) -> None:
    """Trains as that attempt of a scheduler's job, which takes the lock of the attempt before.

    With `stop_before` the process suspends itself between the check of the lock and that call, for
    a file of that name.
    """
    os.environ |= {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(attempt)}
    if stop_before is not None:
        call, name = stop_before
        before = getattr(os, call)

        def suspended(source: Path, target: Path, **options: object) -> None:
            if Path(target).name == name:
                setattr(os, call, before)
                os.kill(os.getpid(), signal.SIGSTOP)
            before(source, target, **options)

        setattr(os, call, suspended)
    try:
        run(config)
    except UserError as error:
        end_with(error)


started: list[multiprocessing.Process] = []


@pytest.fixture(autouse=True)
def _end_what_was_started():
    yield
    while started:
        process = started.pop()
        if process.is_alive():
            process.kill()
        process.join()


def start(*arguments: object, target: Callable[..., None] = train) -> multiprocessing.Process:
    process = forked.spawner.Process(target=target, args=arguments)
    forked.start(process)
    started.append(process)
    return process


def composed(runs_dir: Path) -> dict:
    return tiny.composed(*TINY) | {"runs_dir": str(runs_dir)}


def files(folder: RunFolder) -> dict[str, tuple[int, bytes]]:
    """Inode and content of each file."""
    there = (path for path in folder.path.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder.path)): (path.stat().st_ino, path.read_bytes())
        for path in there
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> RunFolder:
    runs_dir = tmp_path_factory.mktemp("undisturbed")
    start(composed(runs_dir), 0).join()
    (folder,) = runs_in(runs_dir)
    return folder


def copied(run: RunFolder, runs_dir: Path) -> tuple[dict, RunFolder]:
    """A copy of a finished run, and what it is a run of."""
    path = Path(shutil.copytree(run.path, runs_dir / run.path.name))
    return composed(runs_dir), RunFolder(path)


def take_over_and_wake(config: dict, suspended: multiprocessing.Process) -> RunFolder:
    """Another process finishes the run; then the suspended one goes on, and must change nothing."""
    successor = start(config, 1)
    successor.join()
    assert successor.exitcode == 0
    (folder,) = runs_in(Path(config["runs_dir"]))
    before = files(folder)
    os.kill(suspended.pid, signal.SIGCONT)
    suspended.join()
    assert suspended.exitcode == HELD == 69
    assert files(folder) == before
    assert set(before) == LISTED
    return folder


NAMED = ("metrics.csv", "train.log", "last.ckpt", "best.ckpt", "curves.svg", "result.json")


@pytest.mark.parametrize("name", NAMED)
def test_suspended_between_the_check_of_the_lock_and_the_name(undisturbed, tmp_path, name):
    config = composed(tmp_path)
    first = start(config, 0, ("link" if name == "result.json" else "replace", name))
    wait_for(lambda: state_of(first.pid) == "T")
    assert_same_run(undisturbed, take_over_and_wake(config, first))


def test_damaged_metrics_are_restored_where_the_last_epoch_is_over(undisturbed, tmp_path):
    config, folder = copied(undisturbed, tmp_path)
    folder.result.unlink()
    whole = folder.metrics.read_bytes()
    folder.metrics.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    start(config, 1).join()
    assert_same_run(undisturbed, folder)


def test_damaged_metrics_of_a_run_without_a_checkpoint_begin_anew(undisturbed, tmp_path):
    config, folder = copied(undisturbed, tmp_path)
    for path in (folder.result, folder.best, folder.last):
        path.unlink()
    folder.metrics.write_bytes(b"crc32,step,e0och\n")
    start(config, 1).join()
    assert_same_run(undisturbed, folder)


@pytest.mark.parametrize("content", [bytes(range(256)), None])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("config", r"the run's command restores it from a checkpoint$"),
        ("identity", r"run the same command again$"),
    ],
)
def test_a_damaged_file_of_a_finished_run_is_restored(undisturbed, tmp_path, name, told, content):
    config, folder = copied(undisturbed, tmp_path)
    path, read = getattr(folder, name), getattr(folder, f"read_{name}")
    trained = read()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=told):
        read()
    start(config, 1).join()
    assert read() == trained
    assert not list(tmp_path.glob("*.lock"))


def test_a_configuration_that_no_checkpoint_has_is_said_to_be_lost(undisturbed, tmp_path, capsys):
    config, folder = copied(undisturbed, tmp_path)
    shutil.rmtree(folder.checkpoints)
    folder.config.write_bytes(b"seed: 1\n")
    run(config | {"keep": "none"})
    shown = capsys.readouterr().out
    assert f"{folder.config} is damaged and cannot be restored: " in shown
    assert "test perplexity" in shown


def test_litter_of_a_finished_run_goes(undisturbed, tmp_path):
    config, folder = copied(undisturbed, tmp_path)
    for name in (".result.json.ab.tmp", "checkpoints/.best.ckpt.123.tmp"):
        (folder.path / name).write_text("of a killed process")
    start(folder.lock, target=lock_and_die).join()
    assert folder.lock.exists()
    start(config, 1).join()
    assert set(files(folder)) == LISTED
    assert list(tmp_path.iterdir()) == [folder.path]


def lock_and_die(path: Path) -> None:
    RunLock(path).acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_litter_is_left_to_who_holds_the_lock(undisturbed):
    litter = undisturbed.path / ".result.json.ab.tmp"
    litter.write_text("being written")
    with RunLock(undisturbed.lock):
        tidy_all([(undisturbed, "all")])
        assert litter.exists()
    measuring = undisturbed.analysis / ".rank.json.ab.tmp"  # which takes no lock
    measuring.parent.mkdir(exist_ok=True)
    measuring.write_text("being written")
    tidy_all([(undisturbed, "all")])
    assert not litter.exists()
    assert measuring.exists()
    os.utime(measuring, (0, 0))
    tidy_all([(undisturbed, "all")])
    assert not measuring.exists()


def test_leftovers_of_who_took_over_are_not_removed(tmp_path):
    """Suspended before it removes what it found, a process finds its lock lost."""
    litter = tmp_path / ".a.tmp"
    litter.touch()

    def lost() -> None:
        raise LockHeld("taken over meanwhile")

    with pytest.raises(LockHeld):
        atomic.remove_leftovers(tmp_path, lost)
    assert litter.exists()


def train_and_die(config: dict, call: str, prefix: str) -> None:
    """Is killed before that call of `os` on a file whose name begins so."""
    before: Callable[..., None] = getattr(os, call)

    def killed(path: Path, *others: object, **options: object) -> None:
        if Path(path).name.startswith(prefix):
            os.kill(os.getpid(), signal.SIGKILL)
        before(path, *others, **options)

    setattr(os, call, killed)
    run(config)


def killed_run(config: dict, call: str, prefix: str) -> RunFolder:
    process = start(config, call, prefix, target=train_and_die)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (folder,) = runs_in(Path(config["runs_dir"]))
    return folder


@pytest.fixture(scope="module")
def before_the_first(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was killed as soon as it had finished."""
    config = composed(tmp_path_factory.mktemp("runs")) | {"keep": "none"}
    return killed_run(config, "rename", "last.ckpt")


@pytest.mark.parametrize(
    ("call", "prefix", "left"),
    [
        ("rename", "last.ckpt", {"best.ckpt", "last.ckpt"}),
        ("unlink", ".last.ckpt.", {"best.ckpt"}),
        ("rename", "best.ckpt", {"best.ckpt"}),
        ("unlink", ".best.ckpt.", set()),
    ],
)
def test_killed_while_it_removes_checkpoints(before_the_first, tmp_path, call, prefix, left):
    shutil.copytree(before_the_first.path.parent, tmp_path, dirs_exist_ok=True)
    config = composed(tmp_path) | {"keep": "none"}
    folder = killed_run(config, call, prefix)
    assert {path.name for path in folder.checkpoints.glob("*.ckpt")} == left
    assert folder.state() == "finished"
    run(config)
    whole, found = (
        {name: content for name, (_, content) in files(each).items()}
        for each in (before_the_first, folder)
    )
    assert found == {
        name: content for name, content in whole.items() if not name.startswith("checkpoints/")
    }
    assert list(tmp_path.iterdir()) == [folder.path]

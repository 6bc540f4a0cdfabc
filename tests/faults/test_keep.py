"""Killed while it removes checkpoints, a run has finished; the same line removes the rest."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder
from tests import forked, tiny

KEPT = (*tiny.TINY, "keep=none")


def composed(runs_dir: Path) -> dict:
    return tiny.composed(*KEPT) | {"runs_dir": str(runs_dir)}


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
    process = forked.spawner.Process(target=train_and_die, args=(config, call, prefix))
    forked.start(process)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (path,) = Path(config["runs_dir"]).glob("*/config.yaml")
    return RunFolder(path.parent)


def files(folder: RunFolder) -> dict[str, bytes]:
    there = (path for path in folder.path.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in there}


@pytest.fixture(scope="module")
def before_the_first(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was killed as soon as it had finished."""
    return killed_run(composed(tmp_path_factory.mktemp("runs")), "rename", "last.ckpt")


@pytest.mark.parametrize(
    ("call", "prefix", "left"),
    [
        ("rename", "last.ckpt", {"best.ckpt", "last.ckpt"}),
        ("unlink", ".last.ckpt.", {"best.ckpt"}),
        ("rename", "best.ckpt", {"best.ckpt"}),
        ("unlink", ".best.ckpt.", set()),
    ],
)
def test_the_same_line_removes_the_rest(before_the_first, tmp_path, call, prefix, left):
    shutil.copytree(before_the_first.path.parent, tmp_path, dirs_exist_ok=True)
    config = composed(tmp_path)
    folder = killed_run(config, call, prefix)
    assert {path.name for path in folder.checkpoints.glob("*.ckpt")} == left
    assert folder.state() == "finished"
    run(config)
    whole = files(before_the_first)
    assert files(folder) == {
        name: content for name, content in whole.items() if not name.startswith("checkpoints/")
    }
    assert list(tmp_path.iterdir()) == [folder.path]

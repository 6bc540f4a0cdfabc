"""A checkpoint that has changed on its disk stops the run, and the message says what is whole."""

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.experiment.load import load_run
from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder
from lmkit.training import checkpoint_files
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors
from tests.faults.comparison import contents


def go_on(folder: RunFolder) -> RunFolder:
    return run(folder.read_config() | {"runs_dir": str(folder.path.parent), "max_epochs": 5})


def change_a_weight(checkpoint: Path) -> None:
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)


def test_the_line_in_the_message_goes_on_from_the_best_epoch(toy_run, toy_copy, tmp_path):
    path = tmp_path / "damaged runs" / toy_run.path.name
    folder, undisturbed = RunFolder(shutil.copytree(toy_run.path, path)), go_on(toy_copy)
    change_a_weight(folder.last)
    with pytest.raises(UserError, match=r"last\.ckpt is damaged .*best\.ckpt is intact") as said:
        go_on(folder)
    line = str(said.value).partition(" type ")[2].partition(" and the same command")[0]
    subprocess.run(line, shell=True, check=True)
    assert go_on(folder).read_result().metrics == undisturbed.read_result().metrics


def test_where_no_checkpoint_is_whole_the_run_starts_anew(toy_copy):
    toy_copy.reopen()
    change_a_weight(toy_copy.last)
    change_a_weight(toy_copy.best)
    with pytest.raises(UserError, match=r"last\.ckpt is damaged .*; remove it to start again$"):
        go_on(toy_copy)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("checkpoints/last.ckpt", r"last\.ckpt is damaged .*; to train the run again, remove its"),
        ("identity.json", r"identity\.json is damaged"),
    ],
)
def test_a_finished_run_that_cannot_go_on_keeps_all_that_it_has(toy_copy, name, said):
    (toy_copy.analysis / "of_mine.json").write_text("{}")
    change_a_weight(toy_copy.path / name)
    change_a_weight(toy_copy.best)
    before = contents(toy_copy.path)
    with pytest.raises(UserError, match=said):
        go_on(toy_copy)
    assert contents(toy_copy.path) == before


def test_a_checkpoint_of_another_program_is_not_measured(toy_copy):
    write_tensors(toy_copy.last, {"epoch": 1})
    with pytest.raises(UserError, match=r"last\.ckpt is no checkpoint of lmkit"):
        load_run(toy_copy.path, "last", None, None)


def test_a_damaged_best_checkpoint_is_not_measured(toy_copy):
    change_a_weight(toy_copy.best)
    with pytest.raises(UserError, match=r"best\.ckpt is damaged .*last\.ckpt is intact.*again"):
        load_checkpoint(toy_copy.best)


def test_a_checkpoint_that_cannot_be_read_just_now_is_not_called_damaged(toy_run, monkeypatch):
    def out_of_reach(file: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_files, "verify", out_of_reach)
    with pytest.raises(
        UserError, match=r"^cannot read .*: Input/output error; run the same command again, and if"
    ):
        load_checkpoint(toy_run.last)

"""The campaign of faults notices what it is to notice; `make test-faults` runs it."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import read_tensors, write_tensors
from tests.faults import interposer, recording
from tests.faults.comparison import differences
from tests.faults.interposer import Kind
from tests.faults.mutants import MUTANTS, mutated
from tests.faults.recording import Operation, Tree

needs_gcc = pytest.mark.skipif(not interposer.has_compiler(), reason="there is no gcc")
PROGRAM = """\
import atexit, os, sys
from pathlib import Path
from tests.faults.interposer import Action, Kind, control_of
control = control_of({library!r})
control.watch(Path({folder!r}))
control.concerned = 1 << Kind.WRITE
control.share = 500
{fault}
os.chdir({folder!r})
{work}
"""
SET = "control.kind, control.nth, control.action, control.value"
WRITES = "for i in range(4): Path(f'f{i}').write_bytes(b'x' * 9)"
TORCH = """\
import torch
torch.save({'a': torch.ones(3)}, 'a.pt')
sys.exit(control.counts[Kind.WRITE] == 0)"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    path = interposer.built()
    yield path
    shutil.rmtree(path.parent)


def ends(library: Path, folder: Path, fault: str, work: str) -> subprocess.CompletedProcess:
    program = PROGRAM.format(library=str(library), folder=str(folder), fault=fault, work=work)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@needs_gcc
@pytest.mark.parametrize(
    ("fault", "status", "sizes"),
    [
        ("", 0, [9, 9, 9, 9]),
        (f"{SET} = Kind.WRITE, 3, Action.SIGNAL, 9", -9, [9, 9, 0]),
        (f"{SET} = Kind.OPEN, 2, Action.SIGNAL, 9", -9, [9]),
        (f"{SET} = Kind.WRITE, 2, Action.FAIL, {errno.ENOSPC}", 1, [9, 0]),
        (f"{SET} = Kind.WRITE, 2, Action.TEAR, 0", -9, [9, 5]),
    ],
    ids=["none", "killed before a write", "killed before an open", "disk full", "torn write"],
)
def test_the_fault_comes_at_its_call(library, tmp_path, fault, status, sizes):
    done = ends(library, tmp_path, fault, WRITES)
    assert done.returncode == status, done.stderr
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == sizes


@needs_gcc
def test_a_call_may_come_when_nothing_refers_to_the_control_block(library, tmp_path):
    work = "del control\natexit.register(Path('late').write_bytes, b'x')"
    done = ends(library, tmp_path, "", work)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "late").read_bytes() == b"x"


@needs_gcc
def test_the_calls_of_libtorch_are_met(library, tmp_path):
    assert ends(library, tmp_path, "", TORCH).returncode == 0


def left(*calls: tuple[Kind, str, str, int, bytes]) -> set[tuple[tuple[str, bytes], ...]]:
    """The trees that a power loss may leave of calls."""

    def files(tree: Tree) -> tuple[tuple[str, bytes], ...]:
        return tuple(
            (name, bytes(tree.content.get(n, b""))) for name, n in sorted(tree.names.items())
        )

    made = [Operation(*call[:4], offset=0, data=call[4]) for call in calls]
    return {files(state.tree) for state in recording.states(recording.with_syncs(made))}


CREATE = (Kind.CREATE, "/a/t", "", 1, b"")
WRITE = (Kind.WRITE, "/a/t", "", 1, b"word")
SYNC = (Kind.FSYNC, "/a/t", "", 1, b"")
RENAME = (Kind.RENAME, "/a/t", "/a/f", 1, b"")
SYNC_FOLDER = (Kind.FSYNC, "/a", "", -1, b"")


def test_a_power_loss_may_leave_a_name_without_its_data():
    assert (("/a/f", b""),) in left(CREATE, WRITE, RENAME, SYNC_FOLDER)
    assert (("/a/f", b"wo"),) in left(CREATE, WRITE, RENAME, SYNC_FOLDER)


def test_synced_data_are_whole_wherever_they_have_a_name():
    trees = left(CREATE, WRITE, SYNC, RENAME, SYNC_FOLDER)
    assert {content for tree in trees for name, content in tree if name == "/a/f"} == {b"word"}
    assert () in trees
    assert (("/a/t", b""),) in trees


def test_what_is_on_the_disk_stays():
    other = (Kind.CREATE, "/a/u", "", 2, b"")
    later = [dict(tree) for tree in left(CREATE, WRITE, SYNC, RENAME, SYNC_FOLDER, other)]
    later = [names for names in later if "/a/u" in names]
    assert later == [{"/a/f": b"word", "/a/u": b""}]


@pytest.mark.parametrize("change", ["row", "checkpoint", "stray", "missing"])
def test_a_difference_is_seen(toy_run, tmp_path, change):
    first, second = tmp_path / "first", tmp_path / "second"
    for runs_dir in (first, second):
        shutil.copytree(toy_run.path, runs_dir / toy_run.path.name)
    assert differences(second, first) == []
    folder = RunFolder(second / toy_run.path.name)
    if change == "row":
        rows = MetricsFile(folder.metrics).read()
        MetricsFile(folder.metrics).restore(rows[-2]["step"] - 1, rows[-2]["epoch"], "")
    elif change == "checkpoint":
        content = read_tensors(folder.last)
        next(iter(content["state_dict"].values())).view(-1)[0] += 1e-6
        write_tensors(folder.last, content)
    elif change == "stray":
        (folder.path / ".metrics.csv.ab.tmp").touch()
    else:
        folder.best.unlink()
    assert differences(second, first)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_every_mutant_has_its_place(mutant):
    with mutated(mutant):
        pass

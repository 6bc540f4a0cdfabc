"""The command in this process, in an empty folder: as typed, but without a second of imports."""

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from hydra.core.global_hydra import GlobalHydra

from lmkit.cli import check_points
from lmkit.cli.main import main
from lmkit.experiment import make
from lmkit.runs.folder import RunFolder
from tests.faults.comparison import runs_in
from tests.forked import for_points
from tests.tiny import TINY

Lmkit = Callable[..., str]


@pytest.fixture(autouse=True)
def no_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a sweep's points here, and forks the processes that train them.

    New processes, which tests/sweeps has, import torch: most of the time of a test of a sweep.
    """

    def run(command: Sequence[str], *, input: str, **_: object) -> CompletedProcess[str]:
        with redirect_stdout(StringIO()) as stdout, monkeypatch.context() as within:
            within.setattr(sys, "stdin", StringIO(input))
            check_points.main()
        return CompletedProcess(command, 0, stdout.getvalue(), "")

    monkeypatch.setattr("lmkit.sweeps.planning.subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr("lmkit.sweeps.processes.subprocess", for_points())


@pytest.fixture
def lmkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lmkit]:
    """Runs `lmkit ARGUMENTS` in the test's folder, whose own modules it can import; returns what it
    prints.
    """
    yield typed_in(tmp_path, monkeypatch)
    forget_modules_in(tmp_path)


def typed_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lmkit:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which tells edits by the second

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lmkit", *arguments])
        GlobalHydra.instance().clear()
        forget_modules_in(folder)  # a file that was edited is imported anew
        stdout = StringIO()
        try:
            with redirect_stdout(stdout):
                main()
        finally:
            print(stdout.getvalue(), end="")  # of a command that fails, too
        return stdout.getvalue()

    return run


def forget_modules_in(folder: Path) -> None:
    importlib.invalidate_caches()
    make.SOURCES.clear()
    for name, module in list(sys.modules.items()):
        # thousands of modules: no paths are made of their names
        if os.path.dirname(getattr(module, "__file__", None) or "") == str(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of plain softmax and one of GSS: not to be written to."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as monkeypatch:
        lmkit = typed_in(folder, monkeypatch)
        for options in (("head/transform=gss", "seed=1"), ("seed=1",), ("seed=2",)):
            lmkit("train", *TINY, *options)
    return folder / "runs"


@pytest.fixture
def three(trained: Path, tmp_path: Path) -> list[RunFolder]:
    """Two runs of plain softmax and one of GSS, in the test's folder `runs`."""
    shutil.copytree(trained, tmp_path / "runs")
    found = runs_in(tmp_path / "runs")
    return sorted(found, key=lambda run: (run.path.name[:4], run.read_config()["seed"]))


@pytest.fixture
def printed(lmkit: Lmkit) -> Lmkit:
    """What a command prints, on one line: tables and terminals break lines anywhere."""
    return lambda *arguments: " ".join(lmkit(*arguments).split())


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[], Sequence[RunFolder]]:
    """The runs that the test has made so far, by their names."""
    return lambda: runs_in(tmp_path / "runs")


@pytest.fixture
def run(runs: Callable[[], Sequence[RunFolder]]) -> Callable[[], RunFolder]:
    """The only run that the test has made."""

    def find() -> RunFolder:
        (folder,) = runs()
        return folder

    return find

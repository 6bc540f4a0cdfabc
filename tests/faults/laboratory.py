"""Where runs are disturbed: its folders, and processes that type a line there."""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lmkit.runs.folder import RunFolder
from tests.dialogue.conftest import TEXTS, write
from tests.faults.comparison import runs_in
from tests.faults.interposer import Control, Kind
from tests.faults.scenarios import Scenario
from tests.faults.warm import Forked, Start, typed

LIMIT_S = 1800.0  # of one process, on however busy a machine


class Undisturbed(NamedTuple):
    """A run that nothing befell."""

    folder: Path
    counts: dict[Kind, int]  # of its calls
    seconds: float


class Laboratory:
    """Where draws are made.

    Args:
        folder: an empty one, for all files.
        control: of the library that this process is preloaded with.
    """

    def __init__(self, folder: Path, control: Control) -> None:
        self.control, self.runs_dir = control, folder / "draw" / "runs"
        self.output = folder / "output"
        self._folder = folder
        self._bases: dict[tuple[str, ...], RunFolder] = {}
        self.dialogues = write(folder / "dialogues", TEXTS)
        self._undisturbed: dict[tuple[str, ...], Undisturbed] = {}

    def clear(self) -> None:
        shutil.rmtree(self.runs_dir.parent, ignore_errors=True)
        self.runs_dir.parent.mkdir()

    def start(self, start: Start, environment: Mapping[str, str] | None = None) -> Forked:
        """A process that types the line."""
        output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        process = start(output, environment or {})
        os.close(output)
        return process

    def complete(self, scenario: Scenario) -> tuple[str, ...]:
        """The scenario's line; the run that it starts from is trained first, if there is none."""
        if not scenario.before:
            return scenario.line
        if scenario.before not in self._bases:
            runs_dir = self._folder / f"base-{len(self._bases)}"
            typed((*scenario.before, f"runs_dir={runs_dir}"), self._finish)
            (self._bases[scenario.before],) = runs_in(runs_dir)
        return (*scenario.line, f"{scenario.takes}={self._bases[scenario.before].path}")

    def _finish(self, start: Start) -> None:
        self.output.write_bytes(b"")
        status = self.start(start).wait(LIMIT_S)
        assert status == 0, self.output.read_text()[-2000:]

    def undisturbed(self, line: tuple[str, ...], start: Start) -> Undisturbed:
        """What comes of a line that nothing befalls."""
        if line not in self._undisturbed:
            self._undisturbed[line] = self._measure(start)
        return self._undisturbed[line]

    def _measure(self, start: Start) -> Undisturbed:
        self.clear()
        self.control.watch(self.runs_dir.parent)
        begun = time.monotonic()
        self._finish(start)
        seconds = time.monotonic() - begun
        self.control.watching = 0
        folder = self._folder / f"undisturbed-{len(self._undisturbed)}"
        self.runs_dir.rename(folder)
        return Undisturbed(folder, dict(zip(Kind, self.control.counts, strict=True)), seconds)


def age_litter(runs_dir: Path) -> bool:
    """Makes what lies beside locks three minutes old; whether there was any.

    Whose it is nobody can tell before: a process elsewhere may be writing it. The next line that is
    typed then removes it.
    """
    litter = [path for path in runs_dir.rglob("*") if ".lock." in path.name]
    for path in litter:
        os.utime(path, (0, time.time() - 200))
    return bool(litter)

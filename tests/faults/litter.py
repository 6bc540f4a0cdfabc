"""Kills a command half-way and at its last calls, types it again, and looks for what is left:

    python -m tests.faults.litter FOLDER COMMAND [option=value ...]

Each time, the command is typed in a copy of FOLDER/inputs. The second one must leave the files that
an undisturbed command leaves, and no others. Figures are empty: drawing them takes the time.
"""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults.interposer import Action, Control, Kind, preloaded

CALLS = (Kind.OPEN, Kind.WRITE, Kind.FSYNC, Kind.LINK, Kind.RENAME, Kind.UNLINK)
LIMIT_S = 300.0  # of one process, on however busy a machine


def main() -> None:
    control = preloaded("tests.faults.litter")
    # slow to import: once the process has its library
    import pytest

    from tests.conftest import leave_undrawn
    from tests.faults.warm import warm_up

    folder, *line = sys.argv[1:]
    trial = _Trial(Path(folder).resolve(), line, control)
    os.chdir(trial.cleared())
    leave_undrawn(pytest.MonkeyPatch())
    warm_up(line)
    sys.exit(trial.run())


class _Trial:
    """A command and the folder in which it is typed."""

    def __init__(self, folder: Path, line: Sequence[str], control: Control) -> None:
        self.inputs, self.work, self.output = (folder / name for name in ("inputs", "work", "out"))
        self.line, self.control = line, control

    def run(self) -> str | None:
        """What was found; None if nothing was."""
        self.cleared()
        self.control.watch(self.work)
        self._finish()
        counts, expected = list(self.control.counts), self._files()
        calls = [
            (kind, nth)
            for kind in CALLS
            for nth in sorted({-(-counts[kind] // 2), counts[kind]} - {0})
        ]
        problems = [self._killed_at(kind, nth, expected) for kind, nth in calls]
        found = [each for each in problems if each]
        print(f"killed {len(problems)} times: {len(found)} problems")
        return "\n".join(found) or None

    def cleared(self) -> Path:
        """The folder to work in, with the inputs alone."""
        if self.work.exists():
            for path in self.work.iterdir():  # it stays: it is the current folder
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return shutil.copytree(self.inputs, self.work, dirs_exist_ok=True)

    def _killed_at(self, kind: Kind, nth: int, expected: set[str]) -> str | None:
        from tests.faults.laboratory import age_litter

        self.cleared()
        self.control.watch(self.work)
        self.control.kind, self.control.nth = kind, nth
        self.control.action, self.control.value = Action.SIGNAL, signal.SIGKILL
        where = f"killed at {kind.name} {nth}"
        if (status := self._typed()) != -signal.SIGKILL:
            return f"{where}: it ended with {status}"
        self.control.watching = 0
        age_litter(self.work)
        self._finish()
        found = self._files()
        return f"{where}: {sorted(found ^ expected)}" if found != expected else None

    def _finish(self) -> None:
        status = self._typed()
        self.control.watching = 0
        assert status == 0, self.output.read_text()

    def _typed(self) -> int:
        from tests.faults.warm import Forked, type_line

        output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        process = Forked(output, work=lambda: type_line(self.line))
        os.close(output)
        return process.wait(LIMIT_S)

    def _files(self) -> set[str]:
        return {str(path.relative_to(self.work)) for path in self.work.rglob("*")}


if __name__ == "__main__":
    main()

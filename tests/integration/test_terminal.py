"""A run on a terminal: what is shown, what Ctrl-C does, and what a closed terminal does."""

import fcntl
import os
import pty
import re
import select
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rich

from lmkit.runs.stop_signals import INTERRUPTED, STOPPED
from tests import forked
from tests.faults.comparison import runs_in
from tests.tiny import without

pytestmark = pytest.mark.slow

WITH_BAR = without("callbacks.progress_bar")


def typed(folder: Path, terminal: str, *arguments: str) -> None:
    """Runs `lmkit ARGUMENTS` in `folder`, in a terminal of its own."""
    from lmkit.cli.main import main

    os.setsid()
    opened = os.open(terminal, os.O_RDWR)
    fcntl.ioctl(opened, termios.TIOCSCTTY, 0)
    for standard in (0, 1, 2):
        os.dup2(opened, standard)
    os.close(opened)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.environ |= {"TERM": "xterm", "COLUMNS": "100"}
    rich.reconfigure()  # the server's console is that of a process without a terminal
    os.chdir(folder)
    sys.argv = ["lmkit", *arguments]
    main()


class Terminal:
    """A terminal with a command in it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.keyboard, theirs = pty.openpty()
        self.shown = ""
        self.process = forked.spawner.Process(
            target=typed, args=(folder, os.ttyname(theirs), *arguments)
        )
        forked.start(self.process)
        self._theirs = theirs  # open, or there would be nothing to read before the command begins

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + 600
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            self._read(0.2)

    def end(self) -> int | None:
        """Reads to the end. Returns: the exit status."""
        while self.process.is_alive():
            self._read(0.2)
        self._read(0)
        self.process.join()
        return self.process.exitcode

    def close(self) -> None:
        os.close(self._theirs)
        os.close(self.keyboard)

    def _read(self, seconds: float) -> None:
        while select.select([self.keyboard], [], [], seconds)[0]:
            self.shown += os.read(self.keyboard, 65536).decode("utf-8", "replace")
            seconds = 0


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """One in which a run of many epochs trains."""
    shown = Terminal(tmp_path, "train", *WITH_BAR, "max_epochs=5000")
    try:
        shown.wait_for(r"epoch ([3-9]|\d{2,}) of 5,000")
        yield shown
    finally:
        if shown.process.is_alive():
            shown.process.kill()
        shown.process.join()


def log(folder: Path) -> str:
    (run,) = runs_in(folder / "runs")
    return run.log.read_text()


def test_it_shows_where_the_run_stands_and_ctrl_c_saves(terminal, tmp_path):
    assert terminal.shown.index("; starting") < terminal.shown.index("of 5,000")
    terminal.wait_for(r"epoch \d+ of 5,000.*\d+ (s|min \d+ s) left")
    terminal.wait_for(r"window \d+ of \d+.*train \d+\.\d+, valid \d+\.\d+")
    assert "tokens/s" not in terminal.shown  # lines that come every epoch are the log's
    os.write(terminal.keyboard, b"\x03")
    assert terminal.end() == INTERRUPTED
    saved = r"interrupted: saved at step \d+; the same command resumes from there"
    assert re.search(rf"\r\x1b\[K{saved}\r\n$", terminal.shown)
    assert re.search(rf"stopped at step \d+: {saved}\n$", log(tmp_path))
    assert "tokens/s" in log(tmp_path)
    terminal.close()


def test_a_closed_terminal_saves(terminal, tmp_path):
    terminal.close()
    terminal.process.join()
    assert terminal.process.exitcode == STOPPED
    assert re.search(r"stopped at .*: stopped by SIGHUP: saved at step \d+", log(tmp_path))


def test_the_closing_measurements_have_bars_by_contexts(tmp_path):
    shown = Terminal(tmp_path, "train", *WITH_BAR, "head/transform=gss")
    assert shown.end() == 0
    shown.close()
    for measurement in ("test perplexity", "spectrum of log P", "spectrum of transformed logits"):
        assert re.search(rf"{measurement}: contexts .*0/\d+", shown.shown), shown.shown
    assert "of 60 contexts" not in log(tmp_path)  # a line a minute

"""Lines of `lmkit` as processes of their own, without seconds of imports in each.

A server makes the imports once, trains a run, and forks a process for each line. The processes that
a sweep starts are forked from the sweep's own.
"""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from io import IOBase
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

from tests.conftest import REPOSITORY

spawner = multiprocessing.get_context("forkserver")
spawner.set_forkserver_preload(["tests.forked", "tests.forking_server"])


def start(process: multiprocessing.process.BaseProcess) -> None:
    """Starts one of the spawner's processes, and the server where there is none."""
    with contextlib.chdir(REPOSITORY):  # where the server finds what it imports
        process.start()


class Line:
    """A process that types a line, with what lmkit and its tests use of `subprocess.Popen`.

    Args:
        folder: where it is typed.
        environment: all variables; None: as they are here.
        log: file that both outputs are added to; None: `ended` returns them.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._printed = None if log else Path(tempfile.mkdtemp())
        files = (log, log) if log else (self._printed / "stdout", self._printed / "stderr")
        self._process = spawner.Process(
            target=_type,
            args=(folder.absolute(), files, arguments, dict(environment or os.environ)),
        )
        start(self._process)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        """Raises: subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("lmkit", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> CompletedProcess[str]:
        """Waits for its end. Returns: its status, and what it printed."""
        status = self.wait()
        printed = [(self._printed / name).read_text("utf-8") for name in ("stdout", "stderr")]
        shutil.rmtree(self._printed)
        return CompletedProcess(["lmkit"], status, *printed)


def typed(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """A line from its start to its end."""
    return Line(folder, *arguments, environment=environment).ended()


def for_points() -> SimpleNamespace:
    """What a sweep in this process uses of the module `subprocess`, with forked processes."""

    def popen(
        command: Sequence[str], *, cwd: str, env: Mapping[str, str], stdout: IOBase, **_: object
    ) -> Line:
        return Line(Path(cwd), *command[3:], environment=env, log=Path(stdout.name))

    names = ("DEVNULL", "STDOUT", "TimeoutExpired")
    return SimpleNamespace(Popen=popen, **{name: getattr(subprocess, name) for name in names})


def _type(
    folder: Path, files: tuple[Path, Path], arguments: Sequence[str], environment: Mapping[str, str]
) -> None:
    from tests.faults import warm  # which imports torch

    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # as the server's own first line has set it
    os.chdir(folder)
    sys.path.append(str(folder))  # as lmkit does
    for name in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        sys.path.insert(0, str(folder / name))
    for number, file in enumerate(files, 1):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(descriptor, number)
        os.close(descriptor)
    warm.end_as_program(lambda: warm.type_sweep(arguments))

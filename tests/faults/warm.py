"""Command lines typed without waiting for imports: processes are forked from one that made them.

A line that trains one run is composed once. Where the run would begin it stops, and each process
that types it goes on from there, out through the command's own handling of errors. A line of a
sweep is typed anew each time; the processes that it starts are forked too.
"""

import importlib
import io
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from hydra.core.global_hydra import GlobalHydra

import lmkit
from lmkit.cli import check_points, entry, finetune, train
from lmkit.cli.main import main as lmkit_command
from lmkit.experiment.run import run
from lmkit.runs.stop_signals import HEARD_SIGNALS
from lmkit.sweeps import planning, processes


class Forked:
    """A process forked from this one, with what lmkit uses of `subprocess.Popen`.

    Args:
        output: descriptor for standard output and error.
        environment: what is added to the environment.
        work: what it does; None raises `GoOn` in it, at this very place.
    """

    def __init__(
        self,
        output: int,
        environment: Mapping[str, str] | None = None,
        work: Callable[[], object] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        os.environ.update(environment or {})
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        if work is None:
            raise GoOn
        end_as_program(work)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises: subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.002)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class GoOn(BaseException):
    """Takes a forked process out of what its parent was doing, back to the line that was typed."""


class _Used(BaseException):
    """Ends the line in the process that forked the others."""


Start = Callable[[int, Mapping[str, str]], Forked]  # of a process: its output, its environment


def warm_up(line: Sequence[str]) -> None:
    """Imports all of lmkit, and types a line, whose run fills what Python and libraries cache.

    From then on a signal does what it does in a process that a shell starts.
    """
    for module in pkgutil.walk_packages(lmkit.__path__, "lmkit."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    entry.set_up_hydra()
    torch.set_num_threads(1)
    with _silent():
        type_line(line)
    _hear_signals()


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed. Loggers that begin meanwhile keep this process's own streams."""
    before = os.dup(1), os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1), os.dup2(nothing, 2)
    try:
        yield
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        for descriptor, own in zip(before, (1, 2), strict=True):
            os.dup2(descriptor, own)
            os.close(descriptor)
        os.close(nothing)


def typed(line: Sequence[str], use: Callable[[Start], None]) -> None:
    """Calls `use` with what starts a process that types `lmkit` and `line`.

    Between `use` and its calls there may be no `with` and no `finally`: of a run's line, the forked
    process leaves `use` by an exception.
    """
    if "--multirun" in line:
        return use(
            lambda output, environment: Forked(output, environment, lambda: type_sweep(line))
        )
    mine = os.getpid()

    def paused(config: dict[str, Any]) -> object:
        try:
            use(Forked)
        except GoOn:
            pass
        else:
            raise _Used
        return run(config)

    train.run = finetune.run = paused  # type: ignore[assignment]
    try:
        type_line(line)
    except _Used:
        train.run = finetune.run = run
    except BaseException as error:
        if os.getpid() == mine:
            raise
        _exit(error)
    else:
        assert os.getpid() != mine, "the line began no run"
        _exit(None)
    return None


def type_line(line: Sequence[str]) -> None:
    sys.argv = ["lmkit", *line]
    lmkit_command()


def type_sweep(line: Sequence[str]) -> None:
    """Types a line. Where it is a sweep's, its processes are forked from this one."""
    names = ("DEVNULL", "STDOUT", "TimeoutExpired")
    known = {name: getattr(subprocess, name) for name in names}
    processes.subprocess = SimpleNamespace(Popen=_point, **known)  # type: ignore[assignment]
    planning.subprocess = SimpleNamespace(run=_check_points)  # type: ignore[assignment]
    type_line(line)


def _point(command: Sequence[str], *, stdout: io.IOBase, cwd: str, env: Any, **_: object) -> Forked:
    def work() -> None:
        os.setsid()
        os.chdir(cwd)
        os.environ.update(env)
        _hear_signals()
        GlobalHydra.instance().clear()
        type_line(command[3:])  # after python -m lmkit

    return Forked(stdout.fileno(), work=work)


def _check_points(command: Sequence[str], *, input: str, **_: object) -> SimpleNamespace:
    def work() -> None:
        sys.stdin = io.StringIO(input)
        check_points.main()

    with tempfile.TemporaryFile("r+") as printed:
        status = Forked(printed.fileno(), work=work).wait(1800)
        printed.seek(0)
        text = printed.read()
    return SimpleNamespace(returncode=status, stdout=text, stderr=text)


def _hear_signals() -> None:
    """As in a new process: a shell's `&` and `nohup` would have some ignored."""
    for number in HEARD_SIGNALS:
        is_ctrl_c = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)


def end_as_program(work: Callable[[], object]) -> NoReturn:
    """Works, and ends this process as a program of that work would end."""
    try:
        work()
    except BaseException as error:
        _exit(error)
    _exit(None)


def _exit(error: BaseException | None) -> NoReturn:
    """Ends this process as the interpreter would, but for what the parent has registered."""
    status: object = 0
    if isinstance(error, SystemExit):
        status = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""Runs the commands of a reproduction, each as a process of its own.

Each command skips what is finished and resumes where it stopped. So nothing is remembered here: a
restarted reproduction runs the same commands.
"""

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from lmkit.errors.user_error import UserError
from lmkit.reproduction.planning import PlannedCommand
from lmkit.runs.quoting import typed
from lmkit.runs.source import program
from lmkit.runs.stop_signals import STOPPED, StopRequested, StopSignals
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.status import standings

_POLL_S = 0.2


def run_all(commands: Sequence[PlannedCommand], runs_dir: str) -> list[str]:
    """Runs the commands in order. Returns: those that failed.

    Raises: UserError when a sweep leaves nothing that the next command can use; StopRequested when
        one was stopped.
    """
    failed = []
    for command in commands:
        status = run_command(command.words)
        if status == STOPPED:
            raise StopRequested(signal.SIGTERM, "the same command resumes", "lmkit sweep stop")
        if status != 0:
            failed.append(f"lmkit {command.words[0]}")
        if command.sweep:
            _require_runs(command, runs_dir, status)
    return list(dict.fromkeys(failed))


def _require_runs(command: PlannedCommand, runs_dir: str, status: int) -> None:
    try:
        every = standings(SweepFolder.find(command.sweep, runs_dir))
    except UserError:
        every = []
    num_finished = sum(each.is_finished for each in every)
    if status != 0 and not num_finished:
        raise UserError(
            f"lmkit train {command.words[1]} has failed, as shown above; correct that, and the "
            f"same command resumes"
        )
    if status == 0 and num_finished < len(every):
        raise UserError(
            f"{len(every) - num_finished} of {len(every)} runs of {command.sweep} have not "
            f"finished; once they have, the same command resumes"
        )


def run_command(words: Sequence[str]) -> int:
    """Shows and runs `lmkit WORDS`; returns its exit status.

    Raises: StopRequested when a signal asked for it. The command was handed the signal, and has
        saved and ended.
    """
    print(f"$ {typed(words)}", flush=True)
    with StopSignals() as signals:  # from before the command itself may hear of one
        process = subprocess.Popen(
            [*program("lmkit"), *words],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # what is typed at this terminal reaches it once, from here
        )
        is_told = False
        try:
            while process.returncode is None:
                if signals.requested and not is_told:
                    process.send_signal(signals.requested)
                    is_told = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        except BaseException:  # such as Ctrl-C after another signal: it ends at once
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        if signals.requested:
            raise StopRequested(signals.requested)
    return process.returncode

"""A sweep on the terminal: its points' states, how they ended, what failed and why."""

import socket
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from lmkit.presentation.quantities import duration
from lmkit.presentation.tables import Column, counted, decimal, plain_table
from lmkit.runs.quoting import typed
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.status import STATES, Estimate, Standing

# for an estimate
_NEEDED = "trained an epoch on the same text yet, or finished where max_epochs is null"


def console() -> Console:
    """Prints to a terminal in its width, to a file in one that breaks no name."""
    return Console(width=None if sys.stdout.isatty() else 1000)


def show_standings(console: Console, name: str, standings: Sequence[Standing]) -> None:
    """One row per point: its state and what is known of it."""
    measured = ("epoch", "valid ppl", "test ppl", "Press rank", "s/epoch", "left at most")
    columns = [
        *(Column(name, is_text=True) for name in ("point", "state")),
        *(Column(name, is_optional=True) for name in measured),
    ]
    rows = [
        [
            each.point.label,
            each.state + _elsewhere(each.where),
            each.epoch,
            each.valid_ppl,
            each.test_ppl,
            each.press_rank,
            None if each.seconds_per_epoch is None else decimal(each.seconds_per_epoch, 1),
            _left(each),
        ]
        for each in standings
    ]
    table = plain_table(name, columns, rows)
    console.print(table)


def summary(standings: Sequence[Standing]) -> str:
    """How many points are in each state, in one line."""
    number = Counter(each.state for each in standings)
    parts = {state: f"{number[state]:,} {state}" for state in STATES if state in number}
    if diverged := sum(each.has_diverged for each in standings):
        parts["finished"] += f" ({diverged:,} of them diverged, which lmkit runs calls failed)"
    return f"{counted(len(standings), 'run')}: {', '.join(parts.values())}"


def say_command(console: Console, *words: str) -> None:
    """Prints a command as one can type it."""
    console.print(escape(typed(words)), soft_wrap=True, highlight=False)


def show_failures(console: Console, sweep: SweepFolder, standings: Sequence[Standing]) -> None:
    """What failed and why, with the last lines of each log."""
    for each in standings:
        if each.state != "failed" or each.failure is None:
            continue
        log = sweep.log(each.point)
        where = f"; log: {log}" if log.exists() else ""  # launchers of Hydra's have logs elsewhere
        attempts = each.failure.attempts
        after = f" after {counted(attempts, 'attempt')}" if attempts else ""
        after += _elsewhere(each.failure.where)
        console.print(
            f"[red]failed[/]{after}: {escape(f'{each.point.label}: {each.failure.reason}{where}')}",
            soft_wrap=True,
        )
        for line in each.failure.log_tail:
            console.print(f"    {escape(line)}", style="dim", soft_wrap=True)


def _elsewhere(where: str) -> str:
    """` on node7, job 42`; nothing on this node, outside a job."""
    return "" if where in ("", f"on {socket.gethostname()}") else f" {where}"


def estimate_line(estimate: Estimate) -> str:
    """How long the rest will take, estimated from the runs so far."""
    if not estimate.num_points and not estimate.num_unknown:
        return "nothing is left to train"
    if not estimate.num_points:
        return f"no time estimate: no run of these experiments has {_NEEDED}"
    line = f"about {duration(estimate.seconds)} of training, by runs so far"
    if estimate.num_unknown:
        unknown = f"no run of the experiments of {counted(estimate.num_unknown, 'more point')}"
        line += f"; {unknown} has {_NEEDED}"
    return line


def _left(standing: Standing) -> str | None:
    seconds = standing.seconds_left if standing.state == "running" else None
    return None if seconds is None else duration(seconds)

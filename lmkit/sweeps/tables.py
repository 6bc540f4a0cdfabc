"""A sweep in tables: its points before they run, where they stand, how they ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.outcome import Outcome
from lmkit.sweeps.status import Estimate, Standing, counts

_COLOURS = {"done": "green", "running": "cyan", "failed": "red", "unfinished": "yellow"}


def console() -> Console:
    """Prints to the terminal in its width, to a file in one that holds the tables."""
    return Console(width=None if sys.stdout.isatty() else 140)


def show_standings(console: Console, name: str, found: Sequence[Standing]) -> None:
    """One row a point: its state and what is known of it."""
    cells = {
        "epoch": [_number(s.epoch, "d") for s in found],
        "valid ppl": [_number(s.valid_ppl, ".2f") for s in found],
        "test ppl": [_number(s.test_ppl, ".2f") for s in found],
        "Press rank": [_number(s.press_rank, "d") for s in found],
        "s/epoch": [_number(s.seconds_per_epoch, ".1f") for s in found],
        "left at most": [_left(s) for s in found],
    }
    cells = {heading: column for heading, column in cells.items() if any(column)}
    table = Table(title=escape(name))
    for column in ("point", "state"):
        table.add_column(column, overflow="fold")
    for heading in cells:
        table.add_column(heading, justify="right")
    for standing, *row in zip(found, *cells.values(), strict=True):
        table.add_row(escape(standing.point.label), _coloured(standing.state), *row)
    console.print(table)


def summary(found: Sequence[Standing]) -> str:
    """How many points are in each state, in one line."""
    parts = [f"{number:,} {state}" for state, number in counts(found).items() if number]
    return f"{len(found):,} runs: {', '.join(parts)}"


def show_failures(console: Console, sweep: SweepFolder, found: Sequence[Standing]) -> None:
    """What failed and why, with the last lines of each log."""
    for standing in found:
        failure = standing.failure
        if standing.state == "failed" and failure is not None:
            tries = "1 attempt" if failure.attempts == 1 else f"{failure.attempts} attempts"
            console.print(
                f"[red]failed[/] after {tries}: {escape(standing.point.label)}: "
                f"{escape(failure.reason)}; log: {escape(str(sweep.log(standing.point)))}",
                soft_wrap=True,
            )
            for line in failure.log_tail:
                console.print(f"    {escape(line)}", style="dim", soft_wrap=True)


def show_outcomes(console: Console, sweep: SweepFolder, outcomes: Sequence[Outcome]) -> None:
    """The closing table: every point that ran, then what failed and why."""
    table = Table(title=f"sweep {escape(sweep.manifest.name)}")
    for column in ("point", "outcome", "attempts", "why"):
        table.add_column(column, overflow="fold")
    failed = []
    for outcome in outcomes:
        failure = outcome.failure
        attempts, why = (str(failure.attempts), failure.reason) if failure else ("", "")
        colour = "red" if failure else "green"
        label = escape(outcome.point.label)
        table.add_row(label, f"[{colour}]{outcome.how}[/]", attempts, escape(why))
        if failure:
            failed.append(Standing(outcome.point, "failed", failure=failure))
    console.print(table)
    show_failures(console, sweep, failed)


def estimate_line(found: Estimate, slots: int) -> str:
    """How long what is left will take, as far as finished runs tell."""
    if not found.num_points and not found.num_unknown:
        return "nothing is left to train"
    if not found.num_points:
        return "no estimate of the time: no run of these experiments has finished yet"
    slots = min(slots, found.num_points)
    at_a_time = f", {slots} at a time" if slots > 1 else ""
    line = f"about {duration(found.seconds / slots)} of training{at_a_time}, by finished runs"
    if found.num_unknown:
        line += f"; {found.num_unknown:,} more runs are of experiments that none has finished yet"
    return line


def duration(seconds: float) -> str:
    """Seconds in the two units that tell most: 3 d 4 h, 5 h 6 min, 7 min 8 s, 9 s."""
    whole = round(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for i in range(len(units) - 1):
        (large, size), (small, part) = units[i], units[i + 1]
        if whole >= size:
            return f"{whole // size} {large} {whole % size // part} {small}"
    return f"{whole} s"


def _coloured(state: str) -> str:
    colour = _COLOURS.get(state)
    return f"[{colour}]{state}[/]" if colour else state


def _left(standing: Standing) -> str:
    if standing.state != "running" or standing.seconds_left is None:
        return ""
    return duration(standing.seconds_left)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)

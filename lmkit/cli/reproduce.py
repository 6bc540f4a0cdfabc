"""Makes a published table or figure by one command: `lmkit reproduce parthiban_table2`.

A file in conf/reproduce/, or in that folder of one's own configs, names a reproduction.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.progress import track

from lmkit.cli.command_line import config_folders, run_named, searched_folders
from lmkit.cli.entry import (
    CONFIGS,
    config_reader,
    entry_point,
    explained,
    plain_config,
    set_up_hydra,
)
from lmkit.cli.interruption import ends_in_one_line
from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import duration
from lmkit.presentation.tables import Row, absent, number, plain_table, whole
from lmkit.presentation.terminal import to_terminal
from lmkit.reproduction import estimate
from lmkit.reproduction.commands import run_command
from lmkit.reproduction.points import PlannedSweep, Planner
from lmkit.reproduction.running import Reproducing
from lmkit.reproduction.steps import Reproduction
from lmkit.sweeps import tables
from lmkit.sweeps.axes import folder_arguments, option_of
from lmkit.sweeps.multirun import make_launcher
from lmkit.sweeps.quoting import search_path

USAGE = """\
lmkit reproduce makes a published table or figure: it trains, finetunes and measures all that the
table takes, and writes its page.

usage: lmkit reproduce NAME [option=value ...]      lmkit reproduce NAME --help lists the options

"""
GROUP = "reproduce"


def main() -> None:
    """Makes the reproduction that the line's first word names."""
    arguments = sys.argv[1:]
    files = _files(arguments)
    run_named("reproduction", files, _run, lambda: _list(files, arguments))


def _run(name: str) -> None:
    @entry_point(f"{GROUP}/{name}", "the same command again goes on")
    def run(config: DictConfig) -> None:
        wanted = _read(config)
        wanted.require_checkpoints()
        settings = HydraConfig.get()
        with_hydra = OmegaConf.create({"hydra": settings})
        slots = make_launcher(with_hydra).slots()
        arguments = folder_arguments(settings)
        common = [each for each in arguments if each.startswith("hydra.")]
        of_hydra = settings.overrides.hydra
        launcher = [each for each in of_hydra if option_of(each).startswith("hydra/launcher")]
        launcher += [each for each in of_hydra if option_of(each).startswith("hydra.launcher")]
        console = tables.console()
        with console.status("estimating the time"):
            sweeps = _planned(wanted, Planner(config_reader("train"), common))
            plan = _plan_in_words(wanted, sweeps, slots)
        for line in plan:
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        if wanted.dry_run:
            return
        reproducing = Reproducing(
            wanted,
            sweeps,
            launcher=launcher,
            config_arguments=arguments,
            run=run_command,
        )
        out = wanted.out or f"reproductions/{name}_{wanted.size.name}"
        reproducing.finish(out, f"{wanted.paper}, {wanted.table}", _about(wanted, sweeps))
        if reproducing.failed:
            failed = ", ".join(dict.fromkeys(reproducing.failed))
            raise UserError(f"failed, as said above: {failed}; the same command tries again")

    run()


def _files(arguments: list[str]) -> dict[str, Path]:
    """The file of each reproduction, by its name: ours and the user's own."""
    folders = [CONFIGS, *config_folders(arguments)]
    files = {file.stem: file for folder in folders for file in folder.glob(f"{GROUP}/*.yaml")}
    return dict(sorted(files.items()))


def _read(config: DictConfig) -> Reproduction:
    plain_config(config)  # refuses what the form does not know
    wanted = OmegaConf.to_object(config)
    assert isinstance(wanted, Reproduction)
    return wanted


def _planned(wanted: Reproduction, planner: Planner) -> list[PlannedSweep]:
    return [planner.plan(step, wanted) for step in wanted.at_its_size().sweeps]


def _plan_in_words(wanted: Reproduction, sweeps: list[PlannedSweep], slots: int) -> list[str]:
    """What will run, how long that takes, and on what that rests."""
    steps = wanted.at_its_size()
    speed = estimate.speed_of(config for sweep in sweeps for config in sweep.configs)
    times = estimate.times(wanted, sweeps, speed)
    of_runs = f", size={wanted.size.name}: {wanted.size.about}" if sweeps else ""
    lines = [f"{wanted.paper}, {wanted.table}{of_runs}."]
    lines += [f"  sweep {s.name}: {time}" for s, time in zip(sweeps, times.sweeps, strict=True)]
    for finetuning, time in zip(steps.finetunings, times.finetunings, strict=True):
        lines.append(f"  finetuning of {finetuning.runs}: {time}")
    lines += [f"  lmkit {each.command} of {each.runs}" for each in steps.measures]
    lines += [f"  lmkit study {each.study}: no estimate of the time" for each in steps.studies]
    total = times.total()
    if total.seconds:
        at_a_time = f"; sweeps {slots} runs at a time" if slots > 1 else ""
        lines.append(
            f"at most {duration(total.seconds)} of training, one run after another{at_a_time}; "
            "less where runs stop early. Measurements come on top."
        )
    return lines + [f"{each[0].upper()}{each[1:]}." for each in estimate.basis(total, speed)]


def _about(wanted: Reproduction, sweeps: list[PlannedSweep]) -> str:
    """What the page says of its size, which is that of its runs."""
    if not sweeps:
        return f"{wanted.paper}, {wanted.table}."
    changed = list(dict.fromkeys(each for sweep in sweeps for each in sweep.changed))
    options = f" Options of its runs: {', '.join(changed)}." if changed else ""
    size = wanted.size
    return f"{wanted.paper}, {wanted.table}, at size={size.name}. {size.about}.{options}"


def _list(files: dict[str, Path], overrides: list[str]) -> None:
    """Prints all reproductions, each with its runs and hours."""
    set_up_hydra()
    with ends_in_one_line(), explained(GROUP):
        _print_all(files, overrides)


def _print_all(files: dict[str, Path], overrides: list[str]) -> None:
    folders = [CONFIGS, *(folder.resolve() for folder in searched_folders(overrides))]
    search = [search_path(folders)]
    own = [each for each in overrides if re.match(r"[^-].*=", each)]
    console = tables.console()
    every: dict[str, tuple[Reproduction, list[PlannedSweep]]] = {}
    rows: list[Row] = []
    total = estimate.NONE
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        planner = Planner(config_reader("train"), search)
        for name in track(files, "composing", console=console, transient=True):
            wanted = _read(hydra.compose(f"{GROUP}/{name}", [*search, *own]))
            if wanted.is_possible():
                every[name] = wanted, _planned(wanted, planner)
        with console.status("counting FLOPs"):
            speed = estimate.speed_of(
                config for _, sweeps in every.values() for each in sweeps for config in each.configs
            )
        for name, (wanted, sweeps) in every.items():
            time = estimate.times(wanted, sweeps, speed).total()
            total = total.plus(time)
            is_known = time.runs and not time.unknown
            hours = number(time.seconds / 3600, 1) if is_known else absent()
            runs = whole(time.runs or None)
            rows.append([name, wanted.paper, wanted.table, runs, hours])
    console.print(USAGE, end="", highlight=False, markup=False)
    columns = ("name", "paper", "table or figure", "runs", "hours at most")
    title = f"reproductions at size={wanted.size.name}"
    console.print(to_terminal(plain_table(title, columns, rows)))
    for line in (
        "hours are of training; those of studies, which have no runs, are not estimated",
        *estimate.basis(total, speed),
    ):
        console.print(f"{line[0].upper()}{line[1:]}.", highlight=False, soft_wrap=True)

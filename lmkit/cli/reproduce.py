"""Makes a published table or figure by one command: `lmkit reproduce parthiban_table2`.

Each file in conf/reproduce/, or in the same folder of the user's own configs, names a reproduction.
"""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lmkit.cli.command_line import CONFIGS, all_folders, files_of, run_named
from lmkit.cli.entry import (
    config_reader,
    entry_point,
    explained,
    plain_config,
    set_up_hydra,
)
from lmkit.cli.interruption import ends_in_one_line
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.progress import tracked
from lmkit.presentation.quantities import rough_duration
from lmkit.presentation.tables import plain_table
from lmkit.presentation.terminal import to_terminal
from lmkit.reproduction import estimate, listing
from lmkit.reproduction.commands import run_command
from lmkit.reproduction.points import PlannedSweep, Planner
from lmkit.reproduction.running import Reproducing
from lmkit.reproduction.steps import Reproduction
from lmkit.sweeps import tables
from lmkit.sweeps.axes import folder_arguments, option_of
from lmkit.sweeps.quoting import search_path, typed

USAGE = """\
lmkit reproduce makes a published table or figure: it trains, finetunes and measures all that the
table needs, and writes its page.

usage: lmkit reproduce NAME [option=value ...]      lmkit reproduce NAME --help lists the options

"""
GROUP = "reproduce"


def main() -> None:
    """Makes the reproduction that the first argument names."""
    arguments = sys.argv[1:]
    files = files_of(GROUP, arguments)
    run_named("reproduction", files, _run, lambda: _list(files, arguments))


def _run(name: str) -> None:
    @entry_point(f"{GROUP}/{name}", "the same command resumes")
    def run(config: DictConfig) -> None:
        wanted = _read(config)
        wanted.require_checkpoints()
        settings = HydraConfig.get()
        arguments = folder_arguments(settings)
        common = [each for each in arguments if each.startswith("hydra.")]
        of_hydra = settings.overrides.hydra
        launcher = [each for each in of_hydra if option_of(each).startswith("hydra/launcher")]
        launcher += [each for each in of_hydra if option_of(each).startswith("hydra.launcher")]
        console = tables.console()
        with console.status("estimating the time"):
            planner = Planner(config_reader("train"), common, all_folders(sys.argv[1:]))
            sweeps = _planned(wanted, planner)
            reproducing = Reproducing(
                wanted, sweeps, launcher=launcher, config_arguments=arguments, run=run_command
            )
            out = wanted.out or f"reproductions/{name}_{wanted.size.name}"
            page = out, f"{wanted.paper}, {wanted.table}", _about(wanted, sweeps)
            plan = _plan_in_words(wanted, sweeps, reproducing.commands(*page))
        print(*plan, sep="\n", flush=True)
        if wanted.dry_run:
            return
        reproducing.finish(*page)
        if reproducing.failed:
            failed = ", ".join(dict.fromkeys(reproducing.failed))
            raise UserError(f"failed, as shown above: {failed}; the same command retries")

    run()


def _read(config: DictConfig) -> Reproduction:
    plain_config(config)  # refuses unknown keys
    wanted = OmegaConf.to_object(config)
    assert isinstance(wanted, Reproduction)
    return wanted


def _planned(wanted: Reproduction, planner: Planner) -> list[PlannedSweep]:
    return [planner.plan(step, wanted) for step in wanted.at_its_size().sweeps]


def _plan_in_words(
    wanted: Reproduction, sweeps: list[PlannedSweep], commands: list[list[list[str]]]
) -> list[str]:
    """The commands that will run, about how long they take, and the basis of that estimate."""
    speed = estimate.speed_of(config for sweep in sweeps for config in sweep.configs)
    times = estimate.times(wanted, sweeps, speed)
    size = f", size={wanted.size.name}: {wanted.size.about}" if sweeps else ""
    lines = [f"{wanted.paper}, {wanted.table}{size}."]
    of_runs = [*times.sweeps, *times.finetunings]
    seconds = [f"about {rough_duration(each)}" if each else "" for each in times.measures]
    said = [*map(estimate.in_words, of_runs), *seconds]
    said += ["no time estimate"] * len(wanted.at_its_size().studies)
    for every, time in zip(commands, [*said, ""], strict=True):
        lines += [f"  {typed(words)}" for words in every]
        lines += [f"      {time}"] if time else []
    training = list(chain(*of_runs))
    left_s = sum(each.seconds for each in training if each)
    if left_s:
        lines.append(
            f"About {rough_duration(left_s + sum(times.measures))} in all, one run after "
            f"another; less where runs stop early."
        )
    return lines + [f"{each[0].upper()}{each[1:]}." for each in estimate.basis(training, speed)]


def _about(wanted: Reproduction, sweeps: list[PlannedSweep]) -> str:
    """What the page says about the size of its runs."""
    if not sweeps:
        return f"{wanted.paper}, {wanted.table}."
    changed = list(dict.fromkeys(each for sweep in sweeps for each in sweep.changed))
    options = f" Options of its runs: {', '.join(changed)}." if changed else ""
    size = wanted.size
    return f"{wanted.paper}, {wanted.table}, at size={size.name}. {size.about}.{options}"


@ends_in_one_line()
@explained(GROUP)
def _list(files: dict[str, Path], overrides: list[str]) -> None:
    """Prints all reproductions, each with its number of runs."""
    set_up_hydra()
    folders = all_folders(overrides)
    search = [search_path(folders)]
    size = _typed_size(overrides)
    chosen = listing.group_content("size", size, folders)
    console = tables.console()
    every: dict[str, Reproduction] = {}
    for name, file in tracked(files.items(), "reading", console):
        wanted = None if chosen is None else listing.reproduction(file, chosen)
        if wanted is None:
            with hydra.initialize_config_dir(str(file.resolve().parents[1]), version_base="1.3"):
                wanted = _read(hydra.compose(f"{GROUP}/{name}", [*search, f"size={size}"]))
        if wanted.is_possible():
            every[name] = wanted
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        planner = Planner(config_reader("train"), search, folders)
        rows = [
            [name, wanted.paper, wanted.table, planner.num_runs(wanted) or None]
            for name, wanted in every.items()
        ]
    print(USAGE, end="", flush=True)
    columns = ("name", "paper", "table or figure", "runs")
    console.print(to_terminal(plain_table(f"reproductions at size={size}", columns, rows)))
    print("lmkit reproduce NAME dry_run=true shows its commands and about how long they take.")


def _typed_size(overrides: list[str]) -> str:
    """The size to list. Raises: UserError for any other option."""
    size = "full"
    for override in overrides:
        if not re.match(r"[^-].*=", override) or override.startswith("hydra.searchpath="):
            continue
        option, _, value = override.partition("=")
        if option != "size":
            near = did_you_mean(option, ["size"])
            raise UserError(
                f"{option} needs the NAME of a reproduction before it{near}: without one, lmkit "
                f"reproduce lists all, at size=full or another"
            )
        size = value
    return size

"""Makes a published table or figure by one command: `lmkit reproduce parthiban_table2`.

Each file in conf/reproduce/, or in the same folder of the user's own configs, names a reproduction.
"""

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lmkit.cli.command_line import files_of, options_first, run_named
from lmkit.cli.entry import entry_point, explained, plain_config
from lmkit.cli.study import GROUP as STUDIES
from lmkit.errors.user_error import UserError
from lmkit.fixed_trunk.composition import implied
from lmkit.presentation.tables import Column, plain_table
from lmkit.reproduction.planning import Axes, commands, in_words, plan_sweep
from lmkit.reproduction.running import run_all
from lmkit.reproduction.steps import Reproduction
from lmkit.runs.quoting import typed
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import folder_arguments, option_of

USAGE = """\
lmkit reproduce makes a published table or figure: it trains, finetunes and measures all that the
table needs, and writes its page.

usage: lmkit reproduce NAME [option=value ...]      lmkit reproduce NAME --help lists the options

"""
GROUP = "reproduce"


def main() -> None:
    arguments = sys.argv[1:]
    files = files_of(GROUP, arguments)
    run_named("reproduction", files, _run, lambda: _list(files))


def _run(name: str) -> None:
    @entry_point(f"{GROUP}/{name}", "the same command resumes")
    def run(config: DictConfig) -> None:
        plain_config(config)  # refuses unknown keys
        stated = OmegaConf.to_object(config)
        assert isinstance(stated, Reproduction)
        wanted = stated.at_its_size()
        wanted.require_checkpoints()
        settings = HydraConfig.get()
        arguments = folder_arguments(settings)
        common = [each for each in arguments if each.startswith("hydra.")]
        sweeps = [plan_sweep(s, wanted, _axes_of(s.sweep, common)) for s in wanted.sweeps]
        launcher = [
            each
            for each in settings.overrides.hydra
            if option_of(each).startswith(("hydra/launcher", "hydra.launcher"))
        ]
        if wanted.out and not sweeps:
            raise UserError(f"out={wanted.out} is for a page of runs, and {name} has none")
        out = wanted.out or f"reproductions/{name}_{wanted.size.name}"
        every = commands(wanted, sweeps, launcher, out)
        lines = [["train", *implied(line)] for sweep in sweeps for _, line in sweep.runs[:1]]
        lines += [each.words for each in every if each.words[0] != "train"]
        _require_options(lines, common)
        every = [each._replace(words=[*each.words, *arguments]) for each in every]
        size = f", size={wanted.size.name}: {wanted.size.about}" if sweeps else ""
        print(f"{wanted.paper}, {wanted.table}{size}.")
        for command in every:
            print(f"  {typed(command.words)}")
            if about := in_words(command, wanted.runs_dir):
                print(f"      {about}")
        sys.stdout.flush()
        if wanted.dry_run:
            return
        if failed := run_all(every, wanted.runs_dir):
            raise UserError(
                f"failed, as shown above: {', '.join(failed)}; the same command retries"
            )

    run()


def _require_options(lines: list[list[str]], common: list[str]) -> None:
    """Raises UserError, before anything is trained, for a later command that Hydra refuses.

    Args:
        lines: words of commands, without `lmkit`.
        common: what is set for each.
    """
    # of runs that are to be finetuned, one says enough
    alike = [tuple(word for word in line if not word.startswith("run=")) for line in lines]
    for command, *options in dict.fromkeys(alike):
        name = command if command in ("train", "finetune", "report") else f"analyses/{command}"
        if command == "study":
            name = f"{STUDIES}/{options.pop(0)}"
        try:
            with explained(options):
                hydra.compose(name, [*common, *options_first(options)])
        except UserError as error:
            raise UserError(f"{command}: {error}") from None


def _axes_of(sweep: str, common: list[str]) -> Axes:
    """What the file of a sweep varies."""
    overrides = [*common, "hydra/sweeper=lmkit"]
    composed = hydra.compose(f"{axes.GROUP}/{sweep}", overrides, return_hydra_config=True)
    sweeper: Any = OmegaConf.to_container(composed.hydra.sweeper)
    return sweeper.get("params") or {}, sweeper.get("parts") or []


@explained()
def _list(files: dict[str, Path]) -> None:
    rows = []
    for name, file in files.items():
        content: Any = OmegaConf.load(file)
        rows.append([name, content.get("paper"), content.get("table")])
    print(USAGE, end="", flush=True)
    columns = [Column(name, is_text=True) for name in ("name", "paper", "table or figure")]
    tables.console().print(plain_table("reproductions", columns, rows))
    print(
        "lmkit reproduce NAME dry_run=true shows its commands, and what they take by finished runs."
    )

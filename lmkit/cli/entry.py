"""Entry points with Hydra: errors are one line, and torch is imported only where it is needed.

Hydra reports a mistake in several lines or as a traceback. Here it becomes one line that names the
option and says what would be right. Anything else is a bug in lmkit and keeps its traceback.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmkit.cli import options
from lmkit.cli.command_line import CONFIGS, options_first, searched_folders
from lmkit.cli.help_text import help_text
from lmkit.cli.interruption import ends_in_one_line, quiet_when_unread, stderr_file
from lmkit.cli.one_line import in_one_line, of_omegaconf
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.fixed_trunk.composition import filled_in, implied
from lmkit.runs.folder import RunFolder
from lmkit.sweeps.axes import GROUP, OF_SWEEPS, config_arguments, for_sweeper, option_of
from lmkit.sweeps.points import ConfigReader

# what may be the user's mistake
EXPLAINED = (HydraException, OmegaConfBaseException, RuntimeError, ValueError, yaml.YAMLError)

_MULTIRUN = {"--multirun", "-m"}

Task = Callable[[DictConfig], Any]


def entry_point(config_name: str, again: str = "") -> Callable[[Task], Callable[[], None]]:
    """Decorates a task so that a command composes conf/<config_name>.yaml and runs it.

    Args:
        config_name: the file, without its ending.
        again: what the same command does after an interruption, for commands that resume.
    """

    def decorate(task: Task) -> Callable[[], None]:
        @wraps(task)
        def reporting(config: DictConfig) -> Any:
            run = quiet_when_unread()(task)
            if HydraConfig.get().mode != RunMode.MULTIRUN:
                with ends_in_one_line(again), explained():  # otherwise Hydra reports it first
                    return run(config)
            try:
                return run(config)
            except UserError as error:
                # Hydra's sweepers continue with other points, and raise one error at the end
                print(f"error: {error}", file=sys.stderr, flush=True)
                error.printed_on = stderr_file()
                raise

        @wraps(task)
        def main() -> None:
            set_up_hydra()
            with ends_in_one_line(again), explained(takes_sweeps=config_name == "train"):
                sys.argv[1:] = options_first(sys.argv[1:])
                if config_name in ("train", "describe"):
                    sys.argv[1:] = implied(sys.argv[1:])
                if {"--help", "-h"} & set(sys.argv[1:]):
                    print(help_text(config_name, sys.argv[1:]))
                    return
                if config_name == "train":
                    sys.argv[1:] = for_sweeper(sys.argv[1:])
                else:
                    _refuse_sweep(config_name)
                hydra.main(str(CONFIGS), config_name, version_base="1.3")(reporting)()

        return main

    return decorate


def _refuse_sweep(config_name: str) -> None:
    """Raises UserError for what only `lmkit train` takes."""
    # a reproduction passes its launcher on
    refused = (GROUP,) if config_name.startswith("reproduce") else (GROUP, "hydra/launcher")
    for word in sys.argv[1:]:
        is_sweep = word in _MULTIRUN or word.upper() == "HYDRA.MODE=MULTIRUN"
        option = option_of(word)
        if word.startswith("~") and "." not in option and option != "experiment":
            raise UserError(f"{word}: options can be set, not removed")
        if is_sweep or option in refused or option.startswith(("hydra.sweeper", "hydra/sweeper")):
            raise UserError(
                f"{word} goes with lmkit train, where dry_run=true shows its runs: {sys.argv[0]} "
                f"takes one configuration"
            )


@contextmanager
def explained(
    arguments: Sequence[str] | None = None, *, takes_sweeps: bool = False
) -> Iterator[None]:
    """Raises UserError for a mistake that Hydra, OmegaConf or YAML finds.

    Args:
        arguments: None: those of the line, as they are by then.
        takes_sweeps: whether several values of an option are not always a mistake.
    """
    try:
        yield
    except EXPLAINED as error:
        line = in_one_line(error, sys.argv[1:] if arguments is None else arguments, takes_sweeps)
        if line is None:
            raise
        raise UserError(line) from None


def config_reader() -> ConfigReader:
    """How a command reads a composed configuration; for the points of a sweep."""
    own = [f"--config-dir={folder}" for folder in searched_folders(sys.argv[1:])]

    def explain(error: Exception, line: Sequence[str]) -> str:
        return in_one_line(error, [*own, *line]) or str(error)

    known: dict[str, Any] = {}  # the corpora that `define` has read

    def run_folder(config: dict[str, Any], has_gpu: bool | None) -> RunFolder:
        from lmkit.experiment.definition import define

        return define(config, has_gpu, known).folder

    return ConfigReader(implied, plain_config, explain, run_folder)


def compose(config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """What a command would compose from conf/<config_name>.yaml and `overrides`."""
    set_up_hydra()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, list(overrides))


def composed_apart(config_name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """What a command would compose, as plain data.

    The running command may itself be a Hydra application, whose state is set aside meanwhile.
    """
    running = GlobalHydra.instance()
    hydra_of_command, running.hydra = running.hydra, None
    try:
        return plain_config(compose(config_name, overrides))
    finally:
        running.hydra = hydra_of_command
        GlobalHydra.set_instance(running)  # Hydra has put a copy in its place


def plain_config(config: DictConfig) -> dict[str, Any]:
    """The composed configuration as plain data, every interpolation resolved.

    Raises: UserError naming the option that cannot be resolved, or that the command does not know.
    """
    _require_form(config)
    config = filled_in(config)
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(of_omegaconf(error)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items() if key not in OF_SWEEPS}


def _require_form(config: DictConfig) -> None:
    """Raises UserError for options that were added or removed: Hydra allows both."""
    for section, prefix in ((config, ""), (config.get("sweep"), "sweep.")):
        form = OmegaConf.get_type(section) if section is not None else None
        if form is None or not is_dataclass(form):
            continue
        names = [field.name for field in fields(form)]
        there = list(map(str, section.keys()))  # with those that are not set yet
        for name in there:
            if name not in names:
                near = did_you_mean(name, names, prefix)
                unknown = f"there is no option {prefix}{name}{near}"
                raise UserError(f"{unknown}; --help lists all options")
        for name in names:
            if name not in there:
                raise UserError(f"{prefix}{name} is missing: options can be set, not removed")


def typed_options() -> list[str]:
    """The options of the command line, as they were typed: a `${...}` in one is not resolved."""
    task = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    assert isinstance(task, list)
    return task


def command_line(command: str) -> str:
    """The shell command that trains the run of this process, whichever checkpoints it keeps."""
    running = HydraConfig.get()
    options = [each for each in typed_options() if option_of(each) != "keep"]
    return shlex.join(["lmkit", command, *config_arguments(running, command), *options])


@cache
def set_up_hydra() -> None:
    # Hydra then raises its exceptions instead of printing them
    os.environ["HYDRA_FULL_ERROR"] = "1"
    options.register()
    # imported after Hydra's search for plugins, which loads this module anew where it finds it; an
    # editable install hides it from that search
    plugins = Plugins.instance()
    from hydra_plugins.lmkit.launchers import OwnLauncher
    from hydra_plugins.lmkit.sweeper import LmkitSweeper

    plugins.register(LmkitSweeper)
    plugins.register(OwnLauncher)

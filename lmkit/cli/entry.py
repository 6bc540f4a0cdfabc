"""Entry points with Hydra: errors in one line, no torch before it is needed.

Hydra reports mistakes over several lines or as a traceback of its own; here each becomes one line
that names the option and what would be right. Anything else is a defect of lmkit and keeps its
traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmkit.cli.one_line import check_flags, check_options, first_line, in_one_line
from lmkit.errors.user_error import UserError
from lmkit.sweeps.axes import OF_SWEEPS
from lmkit.sweeps.points import Config, ConfigReader

CONFIGS = (Path(__file__).parents[1] / "conf").resolve()


Task = Callable[[DictConfig], float | None]


def entry_point(config_name: str) -> Callable[[Task], Callable[[], None]]:
    """Decorates a task so that `lmkit` composes conf/<config_name>.yaml and runs it."""

    def decorate(task: Task) -> Callable[[], None]:
        defects: list[Exception] = []  # of the task itself, not of what the user typed

        @wraps(task)
        def reporting_task(config: DictConfig) -> float | None:
            is_one_of_many = HydraConfig.get().mode == RunMode.MULTIRUN
            try:
                check_options(config, config_name, CONFIGS)
                return task(config)
            except UserError as error:
                if not is_one_of_many:
                    sys.exit(f"error: {error}")
                # a sweeper of Hydra's has others in this process, and tells of one error at the end
                print(f"error: {error}", file=sys.stderr, flush=True)
                raise
            except Exception as error:
                defects.append(error)
                if is_one_of_many:  # its traceback does not leave a launcher's process
                    traceback.print_exc()
                raise

        @wraps(task)
        def main() -> None:
            _set_up_hydra()
            try:
                check_flags(sys.argv[1:])
                hydra.main(str(CONFIGS), config_name, version_base="1.3")(reporting_task)()
            except KeyboardInterrupt:
                sys.exit("interrupted: the same command again goes on from the last checkpoint")
            except UserError as error:
                sys.exit(f"error: {error}")
            except Exception as error:
                if any(error is defect for defect in defects):
                    raise
                sys.exit(f"error: {in_one_line(error, sys.argv[1:], config_name, CONFIGS)}")

        return main

    return decorate


def config_reader(config_name: str) -> ConfigReader:
    """How the command reads what Hydra has composed, for the points of a sweep."""
    return ConfigReader(
        check=lambda config: check_options(config, config_name, CONFIGS),
        to_plain=plain_config,
        explain=lambda error, line: in_one_line(error, line, config_name, CONFIGS),
    )


def compose(config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """What `python -m` would compose from conf/<config_name>.yaml and `overrides`."""
    _set_up_hydra()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, list(overrides))


def plain_config(config: DictConfig) -> Config:
    """The composed configuration as plain data, every interpolation resolved.

    Raises: UserError naming the option that cannot be resolved.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(first_line(error)) from None
    return {key: value for key, value in plain.items() if key not in OF_SWEEPS}


def create(section: dict, option: str) -> object:
    """The object that a section names by its `_target_`, with its options as arguments.

    Raises: UserError with the object's own complaint, or the reason why it cannot be made.
    """
    try:
        return instantiate(section)
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UserError):
                raise cause from None
            cause = cause.__cause__
        raise UserError(f"{option}: {first_line(error)}") from error


def _set_up_hydra() -> None:
    # makes Hydra hand its exceptions on instead of printing them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    OmegaConf.register_new_resolver("process_id", os.getpid, replace=True)
    plugins = Plugins.instance()
    # imported after Hydra's search for plugins, which loads this module anew where it finds it; an
    # editable install hides it from that search
    from hydra_plugins.lmkit.sweeper import LmkitSweeper

    plugins.register(LmkitSweeper)

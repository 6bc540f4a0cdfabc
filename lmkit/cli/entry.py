"""Entry points with Hydra: errors in one line, no torch before it is needed.

Hydra reports mistakes over several lines or as a traceback of its own; here each becomes one line
that names the option and what would be right. Anything else is a defect of lmkit and keeps its
traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import hydra
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import InstantiationException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmkit.cli.one_line import check_flags, check_options, first_line, in_one_line
from lmkit.errors.user_error import UserError

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGS = REPOSITORY / "conf"
SWEEPS = "multirun_sweeps"
OF_SWEEPS = (SWEEPS, "sweep", "dry_run")  # options of a sweep, not of the runs in it


class _SweepSource(FileConfigSource):
    """The folder multirun_sweeps/ of the repository, and nothing else that lies beside it."""

    @staticmethod
    def scheme() -> str:
        return "sweeps"

    def is_group(self, config_path: str) -> bool:
        return self._is_ours(config_path) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return self._is_ours(config_path) and super().is_config(config_path)

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if not config_path:
            return [SWEEPS] if self.is_group(SWEEPS) and results_filter != ObjectType.CONFIG else []
        return super().list(config_path, results_filter)

    @staticmethod
    def _is_ours(config_path: str) -> bool:
        return config_path.split("/")[0] == SWEEPS


class _NamedSweeps(SearchPathPlugin):
    """Lets `multirun_sweeps=<name>` find the files of the folder beside conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="lmkit", path=f"{_SweepSource.scheme()}://{REPOSITORY}")


def entry_point(config_name: str) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Decorates a task so that `python -m` composes conf/<config_name>.yaml and runs it."""

    def decorate(task: Callable[[DictConfig], None]) -> Callable[[], None]:
        defects: list[Exception] = []  # of the task itself, not of what the user typed

        @wraps(task)
        def reporting_task(config: DictConfig) -> None:
            try:
                check_options(config, config_name, CONFIGS)
                task(config)
            except UserError as error:
                sys.exit(f"error: {error}")
            except Exception as error:
                defects.append(error)
                raise

        @wraps(task)
        def main() -> None:
            _set_up_hydra()
            try:
                check_flags(sys.argv[1:])
                hydra.main(str(CONFIGS), config_name, version_base="1.3")(reporting_task)()
            except KeyboardInterrupt:
                sys.exit("interrupted: the same command again goes on from the last checkpoint")
            except Exception as error:
                if any(error is defect for defect in defects):
                    raise
                sys.exit(f"error: {in_one_line(error, sys.argv[1:], config_name, CONFIGS)}")

        return main

    return decorate


def compose(config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """What `python -m` would compose from conf/<config_name>.yaml and `overrides`."""
    _set_up_hydra()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, list(overrides))


def plain_config(config: DictConfig) -> dict:
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
    from lmkit.sweeps.sweeper import register  # imports this module

    # makes Hydra hand its exceptions on instead of printing them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    OmegaConf.register_new_resolver("process_id", os.getpid, replace=True)
    Plugins.instance().register(_SweepSource)
    Plugins.instance().register(_NamedSweeps)
    register(Plugins.instance())

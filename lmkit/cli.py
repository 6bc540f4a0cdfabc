"""Entry points with Hydra: errors in one line, no torch before it is needed.

Hydra reports mistakes over several lines or as a traceback of its own; here each becomes one line
that names the option and what would be right. Anything else is a defect of lmkit and keeps its
traceback.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmkit.errors import UserError

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIGS = REPOSITORY / "conf"


class _NamedSweeps(SearchPathPlugin):
    """Lets `multirun_sweeps=<name>` find the files of the folder beside conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="lmkit", path=f"file://{REPOSITORY}")


def entry_point(config_name: str) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Decorates a task so that `python -m` composes conf/<config_name>.yaml and runs it."""

    def decorate(task: Callable[[DictConfig], None]) -> Callable[[], None]:
        @wraps(task)
        def reporting_task(config: DictConfig) -> None:
            try:
                task(config)
            except UserError as error:
                sys.exit(f"error: {error}")

        @wraps(task)
        def main() -> None:
            _set_up_hydra()
            try:
                hydra.main(str(CONFIGS), config_name, version_base="1.3")(reporting_task)()
            except (HydraException, OmegaConfBaseException) as error:
                sys.exit(f"error: {_in_one_line(error, config_name)}")
            except KeyboardInterrupt:
                sys.exit("interrupted: the same command again goes on from the last checkpoint")

        return main

    return decorate


def _set_up_hydra() -> None:
    # makes Hydra hand its exceptions on instead of printing them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    OmegaConf.register_new_resolver("process_id", os.getpid, replace=True)
    Plugins.instance().register(_NamedSweeps)


def plain_config(config: DictConfig) -> dict:
    """The composed configuration as plain data, every interpolation resolved.

    Raises: UserError naming the option that cannot be resolved.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(_first_line(error)) from None
    return {key: value for key, value in plain.items() if key != "multirun_sweeps"}


def _in_one_line(error: Exception, config_name: str) -> str:
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    unknown = re.search(r"Could not override '([^']+)'", str(error))
    if unknown:
        return _unknown_option(unknown.group(1), config_name)
    return _first_line(error)


def _missing_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file or "").rpartition("/")
    choices = sorted(error.options or [])
    if not choices:
        return _first_line(error)
    return f"{group}={name} does not exist{_did_you_mean(name, choices)}; there are " + ", ".join(
        choices
    )


def _unknown_option(option: str, config_name: str) -> str:
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        known = list(_options(hydra.compose(config_name), ""))
    return f"there is no option {option}{_did_you_mean(option, known)}; --help lists all options"


def _did_you_mean(word: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _options(node: DictConfig, prefix: str) -> Iterator[str]:
    for key in node:
        option = f"{prefix}{key}"
        yield option
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            yield from _options(child, f"{option}.")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    option = next((line.split(":", 1)[1].strip() for line in lines if "full_key" in line), "")
    return f"{option}: {lines[0]}" if option and option not in lines[0] else lines[0]

"""The configuration of every point of a sweep, composed once per choice of groups.

Hydra takes tenths of a second to compose a configuration, too long for thousands of points. Those
that choose the same groups differ only in values, which are put into one composition in turn.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from hydra.core.config_loader import ConfigLoader
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from lmkit.runs.folder import RunFolder
from lmkit.runs.names import name_with_head
from lmkit.sweeps.axes import Line, option_of, read

Config = dict[str, Any]  # composed, resolved, as plain data


class ConfigReader(NamedTuple):
    """How `lmkit train` reads what Hydra has composed. Supplied by the command line."""

    implied: Callable[[Sequence[str]], list[str]]  # a run's overrides with what they stand for
    to_plain: Callable[[DictConfig], Config]  # resolves; raises UserError where that fails
    explain: Callable[[Exception, Sequence[str]], str]  # Hydra's error about these overrides
    # of a run, found without torch; the flag tells whether it sees a GPU, None: as here
    run_folder: Callable[[Config, bool | None], RunFolder]


class Composer:
    """Composes the points of one sweep."""

    def __init__(
        self, loader: ConfigLoader, config_name: str, common: Sequence[str], reader: ConfigReader
    ) -> None:
        self._loader, self._config_name = loader, config_name
        self._common, self._reader = list(common), reader
        # with the settings that stand in each
        self._composed: dict[tuple[Line, tuple[str, ...]], tuple[DictConfig, Line]] = {}
        self._members = cache(
            partial(loader.get_group_options, config_name=config_name, overrides=self._common)
        )

    def compose(self, line: Line) -> Config:
        """What `lmkit train` would compose from `line`.

        Raises: UserError, or what Hydra and OmegaConf raise, for a line that is wrong.
        """
        choices = tuple(override for override in line if self._is_hydras(override))
        settings = tuple(override for override in line if override not in choices)
        key = choices, tuple(override.partition("=")[0] for override in settings)
        if key in self._composed:
            composed, before = self._composed.pop(key)  # which a value that is refused spoils
            pairs = enumerate(zip(before, settings, strict=True))
            first = next((i for i, (old, new) in pairs if old != new), len(settings))
            for override in settings[first:]:  # a later one may be inside an earlier one
                OmegaConf.update(composed, option_of(override), read(override).value())
        else:
            overrides = [*self._common, *line]
            composed = self._loader.load_configuration(self._config_name, overrides, RunMode.RUN)
            with open_dict(composed):  # not a masked copy, which would lose the options' types
                del composed["hydra"]
        self._composed[key] = composed, settings
        config = self._reader.to_plain(composed)
        return config | {"name": name_with_head(config["name"], line)}

    def _is_hydras(self, override: str) -> bool:
        """Whether the override chooses from a group, removes something, or merges into a
        section."""
        if override.startswith("~") or isinstance(read(override).value(), dict):
            return True
        group = option_of(override).partition("@")[0]
        if "." in group:  # which no group's name holds; asking Hydra takes some hundredths
            return False
        return bool(self._members(group))

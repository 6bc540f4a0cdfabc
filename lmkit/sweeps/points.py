"""The configuration of every point of a sweep, composed once for each choice of groups.

Hydra takes tenths of a second to compose a configuration, too long for thousands of points. Those
that choose the same groups differ by values alone, which are put into a copy of one composition.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmkit.cli.entry import CONFIGS, plain_config
from lmkit.cli.one_line import check_options, in_one_line
from lmkit.errors.user_error import UserError
from lmkit.sweeps.axes import Line, option_of, read

_NODE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")  # an interpolation that is another option's value
_ENVIRONMENT = re.compile(r"\$\{oc\.env:[^${}]*\}")

Path = tuple[str, ...]


class Composer:
    """Composes the points of one sweep.

    Args:
        loader: Hydra's, of the running command.
        config_name: the primary configuration.
    """

    def __init__(self, loader: ConfigLoader, config_name: str) -> None:
        self._loader = loader
        self._config_name = config_name
        self._bases: dict[tuple[Line, Path], _Base] = {}
        self._is_group: dict[str, bool] = {}
        self._values: dict[str, object] = {}

    def compose(self, line: Line) -> dict:
        """What `lmkit train` would compose from `line`: plain, resolved data.

        Raises: UserError in one line.
        """
        choices = tuple(override for override in line if self._chooses(override))
        settings = tuple(override for override in line if override not in choices)
        key = choices, tuple(override.partition("=")[0] for override in settings)
        try:
            if key not in self._bases:
                self._bases[key] = self._compose_base(line)
            values = {_path(override): self._value(override) for override in settings}
            return self._bases[key].with_values(values)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError(in_one_line(error, line, self._config_name, CONFIGS)) from None

    def _compose_base(self, line: Line) -> _Base:
        composed = self._loader.load_configuration(self._config_name, list(line), RunMode.RUN)
        own = OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])
        return _Base(own, self._config_name)

    def _chooses(self, override: str) -> bool:
        """Whether it chooses a group's member, or removes something: both are Hydra's to do."""
        option = option_of(override)
        if option not in self._is_group:
            group = option.partition("@")[0]
            self._is_group[option] = bool(self._loader.get_group_options(group))
        return self._is_group[option] or override.startswith("~")

    def _value(self, override: str) -> object:
        if override not in self._values:
            self._values[override] = read(override).value()
        return self._values[override]


class _Base:
    """One composition, into which other values for some of its options can be put."""

    def __init__(self, config: DictConfig, config_name: str) -> None:
        self._config = config
        self._config_name = config_name
        self._checked: set[tuple[Path, str]] = set()
        raw = OmegaConf.to_container(config, resolve=False)
        texts = [(p, v) for p, v in _leaves(raw, ()) if isinstance(v, str) and "${" in v]
        self._links = {path: _NODE.fullmatch(text) for path, text in texts}
        self._links = {p: tuple(m.group(1).split(".")) for p, m in self._links.items() if m}
        # what else is interpolated may depend on options in ways that only OmegaConf knows
        self._is_simple = all(p in self._links or _ENVIRONMENT.fullmatch(t) for p, t in texts)
        self._plain: dict | None = None

    def with_values(self, values: Mapping[Path, object]) -> dict:
        self._check(values)
        if not self._is_simple or any(_is_complex(value) for value in values.values()):
            return self._with_values_by_omegaconf(values)
        if self._plain is None:
            self._plain = plain_config(self._config)
        config = copy.deepcopy(self._plain)
        for path, value in values.items():
            if path[0] in config:  # not of the sweep itself
                _section(config, path)[path[-1]] = value
        for path in self._links:
            if path[0] in config and path not in values:
                _section(config, path)[path[-1]] = self._linked(config, path, values)
        return config

    def _linked(self, config: dict, path: Path, values: Mapping[Path, object]) -> object:
        while path in self._links and path not in values:
            path = self._links[path]
        return _section(config, path)[path[-1]]

    def _check(self, values: Mapping[Path, object]) -> None:
        """Holds every value once against the defaults: the kind of the option, a section or not."""
        new = {(path, repr(value)) for path, value in values.items()}
        if new <= self._checked:
            return
        for path, value in values.items():
            OmegaConf.update(self._config, ".".join(path), value)
        check_options(self._config, self._config_name, CONFIGS)
        self._checked |= new

    def _with_values_by_omegaconf(self, values: Mapping[Path, object]) -> dict:
        for path, value in values.items():
            OmegaConf.update(self._config, ".".join(path), value)
        return plain_config(self._config)


def _path(override: str) -> Path:
    return tuple(option_of(override).split("."))


def _is_complex(value: object) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and "${" in value)


def _section(config: dict, path: Path) -> dict:
    for key in path[:-1]:
        config = config[key]
    return config


def _leaves(section: object, path: Path) -> Sequence[tuple[Path, object]]:
    if isinstance(section, dict):
        return [leaf for key, inner in section.items() for leaf in _leaves(inner, (*path, key))]
    return [(path, section)]

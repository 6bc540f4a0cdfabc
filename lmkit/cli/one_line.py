"""What is wrong with a command line or a configuration, in one line that says what is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, Node
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lmkit.errors.user_error import UserError, did_you_mean

# sections without a `_target_` by default that take one, and with it options of its own
MAY_NAME_A_CLASS = ("head.",)


def check_flags(arguments: Sequence[str]) -> None:
    """Raises UserError for an argument with dashes that Hydra does not know."""
    known = get_args_parser()._option_string_actions
    for argument in arguments:
        name = argument.split("=")[0]
        if name.startswith("-") and name not in known:
            raise UserError(
                f"there is no flag {name}{did_you_mean(name, list(known))}; options are written "
                f"option=value, and --help lists them"
            )


def check_options(config: DictConfig, config_name: str, configs: Path) -> None:
    """Holds what was composed against the defaults: no option more, none less.

    Hydra itself accepts unknown options in files and after a `+`, and lets `~` remove options.
    Sections with a `_target_` are left to what they name.

    Raises: UserError naming the option.
    """
    _check_section(config, _defaults(config_name), "", configs)


@cache
def _defaults(config_name: str) -> DictConfig:
    loader = GlobalHydra.instance().config_loader()
    return loader.load_configuration(config_name, [], RunMode.RUN)


def _check_section(section: DictConfig, defaults: DictConfig, prefix: str, configs: Path) -> None:
    names_its_class = prefix in MAY_NAME_A_CLASS and "_target_" in section
    for key in () if names_its_class else section:
        if defaults._get_node(key, validate_access=False) is None:
            option = f"{prefix}{key}"
            raise UserError(_no_option(option, list(_options(defaults, prefix))))
    for key in defaults:
        if key == "hydra":
            continue
        option, default = f"{prefix}{key}", defaults._get_node(key)
        value = section._get_node(key, validate_access=False)
        if value is None:
            raise UserError(f"{option} is missing: options can be set, not removed")
        if not _is_section(default):
            _check_kind(option, section, key, default)
            continue
        if not _is_section(value):
            group = option.replace(".", "/")
            choose = f"; choose one with {group}=NAME" if (configs / group).is_dir() else ""
            raise UserError(f"{option} must be a section of options, but is {value}{choose}")
        if "_target_" not in default and "_target_" not in value:
            _check_section(value, default, f"{option}.", configs)


def _check_kind(option: str, section: DictConfig, key: str, default: Node) -> None:
    """Raises UserError for text where the default is a number, and the like; null is a number."""
    node = section._get_node(key)
    if default._is_none() or node._is_missing() or node._is_interpolation():
        return
    kind, value = type(default._value()), section[key]
    if isinstance(value, ListConfig) and default._value() == "all":
        return  # some of what `all` stands for
    if kind is bool and not isinstance(value, bool):
        raise UserError(f"{option} must be true or false, but is {value!r}")
    if kind in (int, float) and isinstance(value, str | bool):
        raise UserError(f"{option} must be a number, but is {value!r}")
    if kind is list and not isinstance(value, ListConfig) and value != "all":
        raise UserError(f"{option} must be a list such as [a,b], but is {value!r}")
    if kind is str and not isinstance(value, str):
        quoted = "" if value is None else f"; quote it: '{option}=\"{value}\"'"
        raise UserError(f"{option} must be a text, but is {value!r}{quoted}")


def in_one_line(error: Exception, arguments: Sequence[str], config_name: str, configs: Path) -> str:
    """The message for an error that Hydra or OmegaConf raised while composing."""
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    unknown = re.search(r"Could not (?:override|append to config[^']*) '([^']+)'", str(error))
    if unknown:
        return _unknown_option(unknown.group(1), arguments, config_name, configs)
    several = re.search(r"Ambiguous value for argument '([^']+)'", str(error))
    if several:
        option, _, values = several.group(1).partition("=")
        return (
            f"{option}={values} has several values: add --multirun to run each of them, or write "
            f"{option}=[{values}] for a list"
        )
    if isinstance(error, ValueError):  # Hydra's own about group=NUMBER, which does not say where
        for argument in arguments:
            group, _, name = argument.partition("=")
            choices = sorted(path.stem for path in (configs / group).glob("*.yaml"))
            if not group:
                return _unreadable(argument)
            if choices and name not in choices:
                return _no_choice(group, name, choices)
    return first_line(error)


def first_line(error: Exception) -> str:
    """The first line of an error of OmegaConf, after the option it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    option = next((line.split(":", 1)[1].strip() for line in lines if "full_key" in line), "")
    if option and isinstance(error, MissingMandatoryValue):
        return f"{option} is not set: give it as {option}=VALUE"
    return f"{option}: {lines[0]}" if option and option not in lines[0] else lines[0]


def _unreadable(argument: str) -> str:
    return (
        f"{argument!r} cannot be read as option=value; write for example optimizer.lr=20, and "
        f"quote values with special characters: 'name=\"a, b\"'"
    )


def _missing_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file or "").rpartition("/")
    if not group:
        return first_line(error)
    return _no_choice(group, name, sorted(error.options or []))


def _no_choice(group: str, name: str, choices: list[str]) -> str:
    there_are = "there are " + ", ".join(choices) if choices else "there are none"
    return f"{group}={name} does not exist{did_you_mean(name, choices)}; {there_are}"


def _unknown_option(option: str, arguments: Sequence[str], config_name: str, configs: Path) -> str:
    others = [a for a in arguments if "=" in a and a.split("=")[0] != option]
    has_hydra = GlobalHydra.instance().is_initialized()  # while a sweep's points are composed
    with (
        nullcontext()
        if has_hydra
        else hydra.initialize_config_dir(str(configs), version_base="1.3")
    ):
        try:
            config = hydra.compose(config_name, others)
        except (HydraException, OmegaConfBaseException):  # the next mistake
            config = hydra.compose(config_name)
    folders = [str(path.relative_to(configs)) for path in configs.rglob("*") if path.is_dir()]
    groups = [group for group in folders if group != option]  # else it is another command's
    return _no_option(option, groups if "/" in option else [*_options(config, ""), *groups])


def _no_option(option: str, known: list[str]) -> str:
    return f"there is no option {option}{did_you_mean(option, known)}; --help lists all options"


def _options(section: DictConfig, prefix: str) -> Iterator[str]:
    for key in section:
        if key == "hydra":
            continue
        option, child = f"{prefix}{key}", section._get_node(key)
        yield option
        if _is_section(child):
            yield from _options(child, f"{option}.")


def _is_section(node: object) -> bool:
    return isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation()

"""What Hydra, OmegaConf or YAML says of a mistake, in one line, with the name that was meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lmkit.cli.command_line import CONFIGS, searched_folders
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.sweeps.axes import option_of, read

_WHOLE = ("experiment", "multirun_sweeps")  # groups whose files set options of any section


def in_one_line(error: Exception, arguments: Sequence[str]) -> str | None:
    """The message for an error of Hydra, OmegaConf, YAML or a value; None for a bug in lmkit."""
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        return _missing_choice(error, arguments)
    if isinstance(error, InstantiationException):
        return _reason(error)
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(error, arguments)
    if isinstance(error, OmegaConfBaseException):
        return of_omegaconf(error)
    if isinstance(error, HydraException):
        return _of_hydra(error, arguments)
    first, *_ = lines = _lines(error)
    if isinstance(error, yaml.YAMLError) or first.startswith("Only one of --"):
        return " ".join(lines)
    if first.startswith("Config group override must be a string"):
        return next(filter(None, map(_number_as_choice, arguments)), first)
    return None


def of_omegaconf(error: OmegaConfBaseException) -> str:
    """The first line of OmegaConf's message, headed by the option."""
    option = error.full_key
    if isinstance(error, MissingMandatoryValue):
        return f"{option} is not set: give it as {option}=VALUE"
    line = " ".join(_lines(error))
    return f"{option}: {line}{_near(error)}" if option and option not in line else line


def _of_hydra(error: HydraException, arguments: Sequence[str]) -> str:
    """Hydra's lines, with the name that may have been meant behind the first."""
    first, *more = _lines(error)
    cause = error.__cause__ if error.__cause__ is not None else error.__context__
    group = next((each for each in map(option_of, arguments) if f"'{each}'" in first), "")
    near = ""
    if "/" in group:
        near = did_you_mean(group, [each for each in _groups() if each != group])
    elif isinstance(cause, OmegaConfBaseException):
        if cause.full_key in _WHOLE:  # OmegaConf takes it for the name of an option
            file = next((each for each in arguments if option_of(each) == cause.full_key), "")
            return f"the file of {file} must begin with the line # @package _global_"
        if not more and first.startswith("Error merging override"):  # it does not say why
            return of_omegaconf(cause)
        near = _near(cause)
    return "; ".join([f"{first}{near}", *more])


def _near(error: OmegaConfBaseException) -> str:
    """The option of the section that is spelt most like the one that it lacks; otherwise the
    choices that have it.
    """
    section, option = error.parent_node, str(error.full_key or "")
    if not isinstance(section, DictConfig) or error.key in section:
        return ""
    prefix, dot, name = option.rpartition(".")
    near = did_you_mean(name, [str(key) for key in section], prefix + dot)
    group = prefix.replace(".", "/")
    having = [each for each in _choices(group) if not near and name in _content(group, each)]
    return f" ({group}={' or '.join(having)} has it)" if having else near


def _reason(error: BaseException) -> str:
    """The complaint of the object that could not be made, or Hydra's reason."""
    while error.__cause__ is not None and not isinstance(error, UserError):
        error = error.__cause__
    return " ".join(_lines(error))


def _lines(error: BaseException) -> list[str]:
    """The lines of a message, without what OmegaConf adds for developers."""
    said = str(error).partition("    full_key:")[0].replace(":\n", ": ").splitlines()
    return [" ".join(line.split()).removesuffix(".") for line in said if line.strip()] or [""]


def _unreadable(argument: str) -> str:
    if Path(argument).exists():
        return f"{argument!r} must follow the option that takes it, as in run={argument}"
    return (
        f"{argument!r} cannot be read as option=value; write for example optimizer.lr=20, and "
        f"quote values with special characters: 'name=\"a, b\"'"
    )


def _number_as_choice(argument: str) -> str:
    """The message for group=NUMBER (or true, null), which Hydra's does not name; "" for others."""
    group = option_of(argument)
    if not group:
        return _unreadable(argument)
    choices = _choices(group)
    if not choices or isinstance(read(argument).value(), str | list):
        return ""
    return f"{argument} does not exist; there are {', '.join(choices)}"


def _not_utf8(error: UnicodeDecodeError, arguments: Sequence[str]) -> str | None:
    """Names the user's file that holds the bytes, which Hydra does not; None if there is none."""
    for file in (file for each in searched_folders(arguments) for file in each.rglob("*.yaml")):
        start = (content := file.read_bytes()).find(error.object)
        if start >= 0:
            line = content.count(b"\n", 0, start + error.start) + 1
            return f"{file} is not UTF-8 text: line {line}; convert the file to UTF-8"
    return None


def _missing_choice(error: MissingConfigException, arguments: Sequence[str]) -> str:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    line = str(error).partition("\n")[0].rstrip(".")  # with the file that asks for it
    choices = sorted({*(error.options or ()), *_choices(group)})
    part = next((CONFIGS / group).glob(f"*/{name}.yaml"), None) if group else None
    near = did_you_mean(name, choices)
    if part is not None:
        near = f" (did you mean {group}/{part.parent.name}={name}?)"
    return f"{line}{near}; {group}= takes {', '.join(choices)}" if choices else line


def _groups() -> list[str]:
    return [str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()]


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")) if group else []


def _content(group: str, choice: str) -> DictConfig:
    content = OmegaConf.load(CONFIGS / group / f"{choice}.yaml")
    assert isinstance(content, DictConfig)
    return content

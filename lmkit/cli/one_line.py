"""Turns errors of Hydra and OmegaConf into one line that says what would be right."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from inspect import signature
from pathlib import Path

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lmkit.cli.command_line import CONFIGS, all_folders, searched_folders
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.sweeps.axes import option_of, read
from lmkit.sweeps.quoting import search_path

# what OmegaConf says of a value of the wrong type, and what the option takes
_OF_TYPES = {
    r"Value '(.*)' of type '\w+' could not be converted to Integer": "a whole number",
    r"Value '(.*)' of type '\w+' could not be converted to Float": "a number",
    r"Value '(.*)' is not a valid bool \(type \w+\)": "true or false",
}
_FEW = 8  # options, which a message lists
WHOLE = ("experiment", "multirun_sweeps")  # groups whose files set options of any section


def in_one_line(error: Exception, arguments: Sequence[str], config_name: str) -> str | None:
    """The message for an error of Hydra, OmegaConf, YAML or a value; None for a bug in lmkit."""
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        return _missing_choice(error, arguments)
    if isinstance(error, InstantiationException):
        return _instantiation(error, config_name)
    if isinstance(error, yaml.YAMLError):
        return _unreadable_yaml(error)
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(error, arguments)
    text = str(error)
    there = re.search(r"Could not append to config\. An item is already at '([^']+)'", text)
    if there:
        return f"{there[1]} is an option already: set it with {there[1]}=VALUE, without a +"
    unknown = re.search(r"Could not (?:override|append to config[^']*) '([^']+)'", text)
    if unknown:
        return _unknown_option(unknown[1], arguments, config_name)
    not_in_form = re.search(r"Key '([^']+)' (?:is )?not in '(\w+)'", text)
    if not_in_form:
        option = _full_key(text) or not_in_form[1]
        if option in WHOLE:
            chosen = next((a for a in arguments if a.startswith(f"{option}=")), option)
            return f"the file of {chosen} must begin with the line # @package _global_"
        return _unknown_option(option, arguments, config_name)
    several = re.search(r"Ambiguous value for argument '([^']+)'", text)
    if several:
        option, _, values = several[1].partition("=")
        return (
            f"{option}={values} has several values: add --multirun to run each of them, or write "
            f"{option}=[{values}] for a list"
        )
    if isinstance(error, HydraException | OmegaConfBaseException):
        return first_line(error)
    if "Invalid plugin 'lmkit." in text:
        return (
            "the launchers local, packed, slurm and workers need hydra/sweeper=lmkit; a sweeper "
            "of Hydra's takes hydra/launcher=basic, joblib or submitit_slurm"
        )
    if isinstance(error, RuntimeError):
        return None
    if text.startswith("Only one of --"):
        return text
    if "Config group override must be a string or a list" in text:
        return _group_given_a_number(arguments)
    return None


def first_line(error: Exception) -> str:
    """The line of an error of OmegaConf that says what is wrong, headed by its file and option."""
    while isinstance(error.__cause__, OmegaConfBaseException):  # Hydra's does not say what is wrong
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    option = _full_key(str(error))
    if option and isinstance(error, MissingMandatoryValue):
        return f"{option} is not set: give it as {option}=VALUE"
    within = re.fullmatch(r"In '(.+)': \w+ raised while composing config:", lines[0])
    where = f"in {within[1]}: " if within else ""
    line = lines[1] if within else lines[0]
    for pattern, kind in _OF_TYPES.items():
        unfit = re.match(pattern, line)
        if option and unfit:
            return f"{where}{option} must be {kind}, but is {unfit[1] or repr('')}"
    return f"{where}{option}: {line}" if option and option not in line else f"{where}{line}"


def _full_key(text: str) -> str:
    named = re.search(r"full_key: *(\S+)", text)
    return named[1] if named else ""


def _instantiation(error: InstantiationException, option: str) -> str:
    """The complaint of the object that could not be made, or Hydra's reason."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
        if isinstance(cause, UserError):
            return str(cause)
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(cause))
    if unknown:
        section = _full_key(str(error))
        name = f"{section}.{unknown[1]}" if section else unknown[1]
        return f"there is no option {name}{_near(unknown[1], str(error))}; --help lists all options"
    return f"{option}: {' '.join(str(cause).split('full_key:')[0].split())}"


def _near(name: str, text: str) -> str:
    """The argument spelt most like `name` of the class that Hydra's message names."""
    target = re.search(r"target '([\w.]+)'", text)
    return did_you_mean(name, [*signature(get_object(target[1])).parameters]) if target else ""


def _group_given_a_number(arguments: Sequence[str]) -> str | None:
    """Finds the argument group=NUMBER (or true, null), which Hydra's ValueError does not name."""
    for argument in arguments:
        group, name = option_of(argument), argument.partition("=")[2]
        if not group:
            return _unreadable(argument)
        choices = _choices(group)
        if choices and not isinstance(read(argument).value(), str | list):
            return _no_choice(group, name, choices)
    return None


def _unreadable(argument: str) -> str:
    if Path(argument).exists():
        return f"{argument!r} must follow the option that takes it, as in run={argument}"
    plain = re.fullmatch(r"([\w./]+)=([^\[\]{}'\"\\]+)", argument)
    if plain:
        quoted = f"'{plain[1]}=\"{plain[2]}\"'"
        return f"{argument!r} cannot be read as option=value; quote the value: {quoted}"
    return (
        f"{argument!r} cannot be read as option=value; write for example optimizer.lr=20, and "
        f"quote values with special characters: 'name=\"a, b\"'"
    )


def _unreadable_yaml(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"{mark.name} cannot be read: line {mark.line + 1}: {error.problem}"


def _not_utf8(error: UnicodeDecodeError, arguments: Sequence[str]) -> str | None:
    """Names the user's file that holds the bytes; None if it is not a configuration."""
    for folder in searched_folders(arguments):
        for file in sorted(folder.rglob("*.yaml")):
            start = file.read_bytes().find(error.object)
            if start >= 0:
                line = file.read_bytes().count(b"\n", 0, start + error.start) + 1
                byte = f"0x{error.object[error.start]:02x}"
                return f"{file} is not UTF-8 text: line {line} ({byte}); convert the file to UTF-8"
    return None


def _missing_choice(error: MissingConfigException, arguments: Sequence[str]) -> str:
    group, _, name = str(error.missing_cfg_file or "").rpartition("/")
    if not group:
        return first_line(error)
    # for a list of choices Hydra does not name the others
    choices = sorted(error.options or _choices(group))
    message = _no_choice(group, name, choices)
    for folder in searched_folders(arguments):
        if (folder.resolve().parent / group / f"{name}.yaml").exists():
            message += f"; --config-dir={os.path.relpath(folder.resolve().parent)} has it"
    return _file_that_sets(name, arguments) + message


def _file_that_sets(name: str, arguments: Sequence[str]) -> str:
    """Heads a message about an option or choice with the user's file that has it; "" if the command
    itself has it, or no file.
    """
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    if any(word.search(argument) for argument in arguments):
        return ""
    chosen = {argument.partition("=")[2] for argument in arguments}
    files = [file for each in searched_folders(arguments) for file in each.rglob("*.yaml")]
    files.sort(key=lambda file: (file.stem not in chosen, file))
    return next((f"{file}: " for file in files if word.search(file.read_text("utf-8"))), "")


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def _no_choice(group: str, name: str, choices: list[str]) -> str:
    there_are = "there are " + ", ".join(choices) if choices else "there are none"
    of_a_part = next((CONFIGS / group).glob(f"*/{name}.yaml"), None) if name else None
    near = did_you_mean(name, choices)
    if of_a_part is not None:
        near = f" (did you mean {group}/{of_a_part.parent.name}={name}?)"
    return f"{group}={name} does not exist{near}; {there_are}"


def _unknown_option(option: str, arguments: Sequence[str], config_name: str) -> str:
    folders = all_folders(arguments)
    primary = next(each for each in folders if (each / f"{config_name}.yaml").is_file())
    others = [
        a for a in arguments if re.match("[^-].*=", a) and a.split("=")[0].lstrip("+~") != option
    ]
    has_hydra = GlobalHydra.instance().is_initialized()  # while a sweep's points are composed
    with (
        nullcontext()
        if has_hydra
        else hydra.initialize_config_dir(str(primary), version_base="1.3")
    ):
        config = _composed(config_name, search_path(folders), others)
    every = [str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()]
    groups = [group for group in every if group != option]  # otherwise another command's
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    launcher = _options(config.hydra.launcher, "hydra.launcher.")
    names = groups if "/" in option else [*_options(own, ""), *launcher, *groups]
    parent, _, name = option.rpartition("/")
    choosing = re.compile(rf"^ *- (override )?{re.escape(name)}:", re.MULTILINE)
    files = sorted((CONFIGS / parent).glob("*.yaml")) if parent else []
    if having := [file.stem for file in files if choosing.search(file.read_text("utf-8"))]:
        choice = config.hydra.runtime.choices.get(parent)
        return f"{option} is not chosen with {parent}={choice}, but with {parent}=" + (
            ", ".join(having)
        )
    section, dot, name = option.rpartition(".")
    inside = (each.removeprefix(section + dot) for each in names if each.startswith(section + dot))
    beside = [each for each in inside if not each.startswith("_")]
    group = section.replace(".", "/")
    choice = config.hydra.runtime.choices.get(group)
    having = _choices_with(name, group) if choice else []
    if having:
        near = did_you_mean(name, beside, section + dot)
        return f"there is no option {option} with {group}={choice}{near}; it is one of {group}=" + (
            ", ".join(having)
        )
    near = did_you_mean(name, beside, section + dot) if beside else did_you_mean(option, names)
    if dot and not beside and section in own:
        near = ""  # what it holds is the user's to say
    elif dot and name in names:
        near = f" (did you mean {name}?)"
    if beside and not near and len(beside) <= _FEW:
        return f"there is no option {option}; there are {', '.join(beside)}"
    add = "" if near or "." not in option else f" (a new one is written +{option}=VALUE)"
    all_of_it = [str(key) for key in own if not str(key).startswith("_")]
    few = f"there are {', '.join(all_of_it)}" if len(all_of_it) <= _FEW else ""
    where = _file_that_sets(option.partition(".")[0], arguments)
    return f"{where}there is no option {option}{near}{add}; {few or '--help lists all options'}"


def _composed(config_name: str, search: str, others: Sequence[str]) -> DictConfig:
    """What the other overrides compose; those that are wrong too are dropped."""
    choices = [each for each in others if _choices(each.partition("=")[0])]
    for overrides in (others, choices):
        try:
            return hydra.compose(config_name, [search, *overrides], return_hydra_config=True)
        except (HydraException, OmegaConfBaseException):  # the next mistake
            continue
    return hydra.compose(config_name, [search], return_hydra_config=True)


def _choices_with(option: str, group: str) -> list[str]:
    """The choices of a group that have an option."""
    return [
        name
        for name in _choices(group)
        if option in OmegaConf.load(CONFIGS / group / f"{name}.yaml")
    ]


def _options(section: DictConfig, prefix: str) -> Iterator[str]:
    plain = OmegaConf.to_container(section, resolve=False)
    yield from _keys(plain, prefix)


def _keys(section: object, prefix: str) -> Iterator[str]:
    if isinstance(section, dict):
        for key, value in section.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")

"""What Hydra, OmegaConf or YAML says of a mistake, in one line, with the name that was meant."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from lmkit.cli.command_line import CONFIGS, searched_folders
from lmkit.errors.user_error import ON_THE_CPU, did_you_mean
from lmkit.experiment.make import not_made
from lmkit.sweeps.axes import option_of, read

_LACKING = (ConfigAttributeError, ConfigKeyError)  # of a section without such an option
_ADVICE = "; 3. To sweep over it, add --multirun to your command line"
_QUOTED_ONCE = re.compile(r"key=\\?'value1,value2\\?'")  # of which a shell takes the quotes
_QUOTED = "'key=\"value1,value2\"'"
_OF_HYDRA_ALONE = ("--resolve", "--shell-completion", "-sc")  # flags with which no task runs
_WHOLE = ("experiment", "multirun_sweeps")  # groups whose files set options of any section


def in_one_line(
    error: Exception, arguments: Sequence[str], takes_sweeps: bool = False
) -> str | None:
    """The message for an error of Hydra, OmegaConf, YAML or a value; None for a bug in lmkit.

    Args:
        takes_sweeps: whether the command has --multirun, which Hydra advises.
    """
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    if isinstance(error, InstantiationException):
        return str(not_made(error, ""))
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(error, arguments)
    if isinstance(error, OmegaConfBaseException):
        return of_omegaconf(error)
    if isinstance(error, HydraException):
        said = _QUOTED_ONCE.sub(_QUOTED, _of_hydra(error, arguments))
        return said if takes_sweeps else said.replace(_ADVICE, "")
    first, *_ = lines = _lines(error)
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which is not imported here
        return f"{first.partition('. ')[0]}: {ON_THE_CPU}"
    if isinstance(error, yaml.YAMLError) or first.startswith(
        ("Only one of --", "Invalid defaults list")
    ):
        return " ".join(lines)
    if any(each.partition("=")[0] in _OF_HYDRA_ALONE for each in arguments):
        return " ".join(lines)
    if first.startswith("Config group override must be a string"):
        return next(filter(None, map(_number_as_choice, arguments)), first)
    return None


def of_omegaconf(error: OmegaConfBaseException) -> str:
    """The first line of OmegaConf's message, headed by the option."""
    option = str(error.full_key or "")
    if isinstance(error, MissingMandatoryValue):
        values = " or ".join(_choices(option.replace(".", "/"))) or "VALUE"
        if option == "callbacks":
            values = "[default], or [default,NAME]"
        return f"{option} is not set: give it as {option}={values}"
    line = " ".join(_lines(error))
    if line.endswith(" is not Optional"):
        return f"{option} cannot be null"
    return f"{option}: {line}{_near(error)}" if option and option not in line else line


def _of_hydra(error: HydraException, arguments: Sequence[str]) -> str:
    """Hydra's first line and the name that may have been meant; without one, Hydra's advice."""
    first, *more = _lines(error)
    cause = error.__cause__ if error.__cause__ is not None else error.__context__
    typed = next((each for each in map(option_of, arguments) if f"'{each}'" in first), "")
    near = ""
    is_removed = f"~{typed}" in arguments
    if "No match in the defaults list" in first and typed in _groups() and not is_removed:
        return f"{typed}= is no choice of this command; --help lists its options"
    if "Multiple values for " in first or "appears more than once" in first:
        added = [each for each in arguments if each[0] == "+" and option_of(each) in first]
        if added:  # Hydra speaks to the author of a file
            return f"{added[0]} adds a second choice; choose another with {added[0][1:]}"
    if "/" in typed:
        near = did_you_mean(typed, [each for each in _groups() if each != typed])
    elif isinstance(cause, OmegaConfBaseException):
        if cause.full_key in _WHOLE:  # OmegaConf takes it for the name of an option
            file = next((each for each in arguments if option_of(each) == cause.full_key), "")
            return f"the file of {file} must begin with the line # @package _global_"
        if not more and first.startswith("Error merging override"):  # it does not say why
            return of_omegaconf(cause)
        lacking = str(cause.full_key)
        if typed and lacking.startswith(f"{typed}."):  # in braces
            return f"{typed} has no {lacking.removeprefix(typed + '.')}; ++{typed}={{...}} adds it"
        near = _near(cause, typed)
    is_no_option = "." not in typed and typed not in _groups()  # nor can one be added
    if first.startswith("Could not override") and is_no_option and not near:
        return f"there is no option {typed}; --help lists all options"
    if typed.startswith("hydra.") and first.startswith("Could not override"):  # nor added there
        return f"there is no option {typed}{near}"
    return f"{first}{near}" if near else "; ".join([first, *more])


def _near(error: OmegaConfBaseException, typed: str = "") -> str:
    """The option that may have been meant, or the choices that have the one that is lacking.

    Args:
        typed: the whole option; "": the error's own, which ends at the first key that is lacking.
    """
    section, lacking = error.parent_node, str(error.full_key or "")
    if not isinstance(section, DictConfig) or not isinstance(error, _LACKING):
        return ""
    if not typed or lacking.startswith(f"{typed}."):
        typed = lacking
    prefix, dot, name = lacking.rpartition(".")
    takes = list(map(str, section))
    near = did_you_mean(name, takes, prefix + dot, cutoff=0.7)
    if near and typed == lacking:
        return near
    group = prefix.replace(".", "/")
    if name in (choices := _choices(group)):
        return f" (did you mean {group}={name}?)"
    # `in` would not find an option that is not set
    having = [each for each in choices if name in list(_content(group, each))]
    if having and section.get("name") == "of_trunk":
        return " (the text is the trunk's)"
    if having:
        return f" ({group}={' or '.join(having)} has it)"
    alike = [key for key in takes if key.startswith(name) or key == name[:-1]]
    if alike and typed == lacking:
        return did_you_mean(name, alike, prefix + dot, cutoff=0)
    whole = OmegaConf.to_container(OmegaConf.select(section, "." * (lacking.count(".") + 1)))
    assert isinstance(whole, dict)
    options = list(_options({key: value for key, value in whole.items() if key != "hydra"}))
    options += _WHOLE if "sweep" in whole else ()  # no sections, and of training alone
    within, _, leaf = typed.rpartition(".")
    same = [each for each in options if each.rpartition(".")[2] == leaf != "_target_"]
    far = [each for each in options if not typed.startswith(f"{each}.")]
    if within:  # what stands beside it was compared above, without the names that they share
        far = [each for each in far if not each.startswith(f"{within}.")]
    near = did_you_mean(typed, [_as_group(each) for each in same], cutoff=0)
    return near or did_you_mean(typed, far, cutoff=0.8)


def _as_group(option: str) -> str:
    """The option as it is chosen: `head/transform` where files say what it may be."""
    group = option.replace(".", "/")
    return group if (CONFIGS / group).is_dir() else option


def _options(section: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of all options and sections."""
    for key, value in section.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _options(value, f"{prefix}{key}.")


def _lines(error: BaseException) -> list[str]:
    """The lines of a message, without what OmegaConf adds for developers."""
    said = str(error).partition("    full_key:")[0].replace(":\n", ": ").splitlines()
    return [" ".join(line.split()).removesuffix(".") for line in said if line.strip()] or [""]


def _unreadable(argument: str) -> str:
    if os.path.exists(argument):
        return f"{argument!r} must follow the option that takes it, as in OPTION={argument}"
    if "=" not in argument and ":" in argument:
        given = argument if " " in argument else f"runs {argument}"
        return f"{argument!r}: a filter stands with its runs in quotes, as in 'OPTION={given}'"
    if "=" not in argument:
        return f"{argument!r} cannot be read as option=value"
    if argument.endswith(","):
        return f"{argument!r} ends with a comma: no space follows one on a command line"
    return (
        f"{argument!r} cannot be read as option=value; quote values with special characters: "
        f"'name=\"a, b\"'"
    )


def _number_as_choice(argument: str) -> str:
    """The message for group=NUMBER (or true, null), which Hydra's does not name; "" for others."""
    if argument.startswith("-"):
        return ""
    group = option_of(argument)
    if not group:
        return _unreadable(argument)
    is_text = read(argument).is_sweep_override() or isinstance(read(argument).value(), str | list)
    if is_text or group not in _groups():
        return ""
    choices = _choices(group)
    return f"{argument} does not exist" + (f"; there are {', '.join(choices)}" if choices else "")


def _not_utf8(error: UnicodeDecodeError, arguments: Sequence[str]) -> str | None:
    """Names the user's file that holds the bytes, which Hydra does not; None if there is none."""
    for file in (file for each in searched_folders(arguments) for file in each.rglob("*.yaml")):
        start = (content := file.read_bytes()).find(error.object)
        if start >= 0:
            line = content.count(b"\n", 0, start + error.start) + 1
            return f"{file} is not UTF-8 text: line {line}; convert the file to UTF-8"
    return None


def _missing_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    line = str(error).partition("\n")[0].rstrip(".")  # with the file that asks for it
    choices = sorted({*(error.options or ()), *_choices(group)})
    within = CONFIGS / group.partition("/")[0]  # head=gss and head/transform=softmaxes, too
    part = next(within.glob(f"*/{name}.yaml"), None) if group else None
    near = did_you_mean(name, choices)
    if part is not None:
        near = f" (did you mean {within.name}/{part.parent.name}={name}?)"
    return f"{line}{near}; {group}= takes {', '.join(choices)}" if choices else line


def _groups() -> list[str]:
    return [str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()]


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")) if group else []


def _content(group: str, choice: str) -> DictConfig:
    content = OmegaConf.load(CONFIGS / group / f"{choice}.yaml")
    assert isinstance(content, DictConfig)
    return content

"""Turns the heads that an option lists, as mixture+transform or `all`, into config sections.

Hydra composes the parts from the config groups head/mixture and head/transform. So the parts of a
user's own folder of configs count as ours do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from lmkit.errors.user_error import UserError, did_you_mean

Section = dict[str, Any]

_DIMS = ("in_dim", "emb_dim")


class _HeadGroup(NamedTuple):
    """The options of head/mixture or of head/transform."""

    sections: dict[str, Section | None]  # by option; None for one that asks more of a trunk
    dims: dict[str, list[str]]  # by option: the sizes that it takes of the trunk
    variants: set[str]  # options that build on another one: gss_wt2 on gss


def head_sections(option: str, heads: object, search_path: Sequence[str] = ()) -> list[Section]:
    """A section for each head, which makes a `FreeHead`; in the order of their names.

    `all` is every mixture with every transform, but for parts that ask more of a trunk than the
    size of its output, and for variants, which are those that build on another one.

    Args:
        option: for errors.
        heads: its value.
        search_path: override of hydra.searchpath, if there is one.

    Raises: UserError naming the option.
    """
    mixtures, transforms = _compose_groups(("mixture", "transform"), search_path)
    if heads == "all":
        names = list(itertools.product(_kinds(mixtures), _kinds(transforms)))
    elif not isinstance(heads, Sequence) or isinstance(heads, str) or not heads:
        raise UserError(f"{option} must be all or a list such as [none+plif], but is {heads!r}")
    else:
        names = [_parts(option, str(head), mixtures, transforms) for head in heads]
    return [
        {
            "_target_": "lmkit.studies.heads.FreeHead",
            "option": f"{mixture}+{transform}",
            "mixture": mixtures.sections[mixture],
            "dims": mixtures.dims[mixture],
            "transform": transforms.sections[transform],
        }
        for mixture, transform in sorted(set(names))
    ]


def _kinds(group: _HeadGroup) -> list[str]:
    return [
        name
        for name, section in group.sections.items()
        if section is not None and name not in group.variants
    ]


def _parts(option: str, head: str, mixtures: _HeadGroup, transforms: _HeadGroup) -> tuple[str, str]:
    mixture, _, transform = head.partition("+")
    if mixture not in mixtures.sections or transform not in transforms.sections:
        pairs = itertools.product(mixtures.sections, transforms.sections)
        near = did_you_mean(head, [f"{first}+{second}" for first, second in pairs])
        raise UserError(
            f"{option}: there is no head {head}{near}; a head is {'|'.join(mixtures.sections)} + "
            f"{'|'.join(transforms.sections)}, as in softmaxes+plif"
        )
    for name, group in ((mixture, mixtures), (transform, transforms)):
        if group.sections[name] is None:
            raise UserError(
                f"{option}: {head} is not for studies, which have no trunk: {name} asks for more "
                f"than the size of a trunk's output"
            )
    return mixture, transform


def _compose_groups(names: Sequence[str], search_path: Sequence[str]) -> list[_HeadGroup]:
    """All options of the groups head/<name>, each in a package of its own, composed at once."""
    loader = GlobalHydra.instance().config_loader()
    overrides = list(search_path)
    for group in names:
        options = loader.get_group_options(f"head/{group}", overrides=list(search_path))
        overrides += [f"+head/{group}@{group}.{option}={option}" for option in options]
    composed = hydra.compose(overrides=overrides)
    included = loader.compute_defaults_list(None, overrides, RunMode.RUN).defaults
    return [
        _HeadGroup(
            {str(option): _part(section) for option, section in composed[group].items()},
            {
                str(option): [name for name in _DIMS if name in section]
                for option, section in composed[group].items()
            },
            {
                str(default.parent).rpartition("/")[2]
                for default in included
                if str(default.config_path).startswith(f"head/{group}/")
                and str(default.parent).startswith(f"head/{group}/")
            },
        )
        for group in names
    ]


def _part(section: DictConfig) -> Section | None:
    """The section as one that makes a part once `in_dim` and `emb_dim` are known."""
    own = [str(key) for key in section if key not in _DIMS]
    try:
        plain = OmegaConf.to_container(OmegaConf.masked_copy(section, own), resolve=True)
    except InterpolationResolutionError:
        return None
    assert isinstance(plain, dict)
    return {**{str(key): value for key, value in plain.items()}, "_partial_": True}

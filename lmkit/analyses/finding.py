"""Finds the analyses: one file each in the config group `analyses`, ours or the user's own, which
lie in a folder that `--config-dir` or `hydra.searchpath` names.
"""

import json

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lmkit.analyses.base import Analysis
from lmkit.experiment.make import factory_of

GROUP = "analyses"


def find_analyses() -> tuple[list[type[Analysis]], dict[str, str]]:
    """The classes that the files name as `_target_`, in the order of their names; several files may
    name the same one. Then the files whose class cannot be loaded, and why.
    """
    classes: set[type[Analysis]] = set()
    left_out: dict[str, str] = {}
    loader = GlobalHydra.instance().config_loader()
    for name in loader.get_group_options(GROUP, overrides=_overrides()):
        try:
            classes.add(_class_of(name))
        except Exception as error:  # a user's module may raise anything
            reason = (str(error) or type(error).__name__).splitlines()[0]
            left_out[f"{GROUP}/{name}"] = f"its analysis cannot be loaded: {reason}"
    return sorted(classes, key=lambda each: each.name), left_out


def _class_of(name: str) -> type[Analysis]:
    target = _target_of(name)
    kind = factory_of({"_target_": target}, "").func
    if not (isinstance(kind, type) and issubclass(kind, Analysis)):
        raise TypeError(f"{target} is not derived from Analysis")
    unset = [each for each in ("name", "record", "title") if not hasattr(kind, each)]
    if unset:
        raise TypeError(f"{target} does not set {', '.join(unset)}")
    return kind


def _target_of(name: str) -> object:
    """What the file names. Only where it names nothing, or lies in a folder of `hydra.searchpath`,
    is it composed, which takes a tenth of a second.
    """
    path = f"{GROUP}/{name}"
    sources = GlobalHydra.instance().config_loader().get_sources()
    holding = (each for each in sources if each.available() and each.is_config(path))
    own = next((each.load_config(path).config for each in holding), None)
    if isinstance(own, DictConfig) and "_target_" in own:
        return own["_target_"]
    composed = hydra.compose(overrides=[f"+{GROUP}@_global_={name}", *_overrides()])
    return composed.get("_target_")


def _overrides() -> list[str]:
    """Overrides that tell Hydra the config folders of this command line."""
    if not HydraConfig.initialized():
        return []
    return [f"hydra.searchpath={json.dumps(list(HydraConfig.get().searchpath))}"]

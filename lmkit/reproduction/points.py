"""The points of a reproduction's sweeps, composed as `lmkit train` would, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lmkit.reproduction.steps import Reproduction, SweepStep
from lmkit.sweeps import axes
from lmkit.sweeps.points import Composer, Config, ConfigReader


class PlannedSweep(NamedTuple):
    """A sweep of a reproduction."""

    name: str  # of its folder
    overrides: list[str]  # of `lmkit train`
    changed: list[str]  # of these, what the sweep's file does not say
    configs: list[Config]  # one a run


def plan_sweep(
    step: SweepStep, wanted: Reproduction, composer: Composer, common: list[str]
) -> PlannedSweep:
    """The sweep at the size that is chosen.

    Args:
        composer: of training configurations.
        common: overrides that say where configurations are.

    Raises: UserError, or what Hydra and OmegaConf raise, for an option or a name that is wrong.
    """
    choice = f"{axes.GROUP}={step.sweep}"
    composed = hydra.compose("train", [*common, choice], return_hydra_config=True)
    params, parts = _of_file(composed.hydra.sweeper)
    varied = {option for each in (params, *parts) for option in each}
    of_size = {k: v for k, v in wanted.at_its_size().training.items() if k not in varied}
    options = of_size | step.training | _flat(wanted.training)
    changed = axes.as_overrides(options)
    settings = [*changed, f"runs_dir={axes.as_value(wanted.runs_dir)}"]
    lines = axes.expand(params, parts, axes.of_runs(settings))
    drawn = axes.sample(
        len(lines), options.get("sweep.sample"), options.get("sweep.sample_seed", 1)
    )
    return PlannedSweep(
        str(options.get("sweep.name", step.sweep)),
        [choice, *settings],
        changed,
        [composer.compose(lines[i]) for i in drawn],
    )


def make_composer(reader: ConfigReader, common: list[str]) -> Composer:
    """What composes the points; it remembers what it has composed.

    Args:
        common: overrides that say where configurations are.
    """
    return Composer(GlobalHydra.instance().config_loader(), "train", common, reader)


def finetuning_options(wanted: Reproduction) -> list[str]:
    """Overrides of every `lmkit finetune` of a reproduction."""
    return axes.as_overrides(wanted.size.finetuning | _flat(wanted.finetuning))


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by their whole names: +training.trainer.precision=tf32 makes nested sections."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _of_file(sweeper: Any) -> tuple[Mapping[str, object], list[Mapping[str, object]]]:
    plain: Any = OmegaConf.to_container(sweeper)
    return plain.get("params") or {}, plain.get("parts") or []

"""The points of a reproduction's sweeps, composed as `lmkit train` would, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lmkit.reproduction import listing
from lmkit.reproduction.steps import Reproduction, SweepStep
from lmkit.runs.names import name_with_head
from lmkit.sweeps import axes
from lmkit.sweeps.axes import Line
from lmkit.sweeps.points import Composer, Config, ConfigReader
from lmkit.sweeps.quoting import as_value


class PlannedSweep(NamedTuple):
    """A sweep of a reproduction."""

    name: str  # of its folder
    overrides: list[str]  # of `lmkit train`
    changed: list[str]  # of these, what the sweep's file does not say
    lines: list[Line]  # one a run
    configs: Sequence[Config] = ()  # in the same order; idle options may be those of another run


# What a sweep's file varies: what is common to all parts, and the parts.
Axes = tuple[Mapping[str, object], list[Mapping[str, object]]]

# Options of a run that change neither its name nor its epochs, nor the matrix products of an epoch:
# transforms are pointwise, and dropout, noise and the optimizer have no products of their own.
_IDLE = re.compile(
    r"seed|(head\.transform|objective|optimizer|schedule)\..+|.+dropout|trunk\.embedding_noise"
)


def is_idle(option: str) -> bool:
    """Whether runs that differ in the option alone are estimated to take the same time."""
    return _IDLE.fullmatch(option) is not None


class Planner:
    """Plans the sweeps of reproductions.

    It reads each sweep's file once. Of runs that are estimated to take the same time it composes
    one.

    Args:
        reader: resolves what is composed.
        common: overrides that say where configurations are.
        folders: where configurations are, in the order in which Hydra searches them.
    """

    def __init__(self, reader: ConfigReader, common: list[str], folders: Sequence[Path]) -> None:
        loader = GlobalHydra.instance().config_loader()
        self._composer, self._common = Composer(loader, "train", common, reader), common
        self._folders = folders
        self._axes: dict[str, Axes] = {}  # by sweep
        self._configs: dict[Line, Config] = {}  # by what is not idle of a line

    def plan(self, step: SweepStep, wanted: Reproduction) -> PlannedSweep:
        """The sweep at the size that is chosen, as `expand` gives it, with its configurations."""
        expanded = self.expand(step, wanted)
        return expanded._replace(configs=[self._compose(line) for line in expanded.lines])

    def num_runs(self, wanted: Reproduction) -> int:
        """How many runs are trained and finetuned, by the experiments that the sweeps name."""
        steps = wanted.at_its_size()
        names = [
            name_with_head(each.removeprefix("experiment="), line)
            for step in steps.sweeps
            for line in self.expand(step, wanted).lines
            for each in line
            if each.startswith("experiment=")
        ]
        finetuned = [n for n in names for s in steps.finetunings if fnmatchcase(n, s.runs)]
        return len(names) + len(finetuned)

    def expand(self, step: SweepStep, wanted: Reproduction) -> PlannedSweep:
        """The sweep at the size that is chosen, without the configurations of its runs.

        Raises: UserError, or what Hydra and OmegaConf raise, for an option or a name that is wrong.
        """
        if step.sweep not in self._axes:
            self._axes[step.sweep] = self._read(step.sweep)
        params, parts = self._axes[step.sweep]
        varied = {option for each in (params, *parts) for option in each}
        of_size = {k: v for k, v in wanted.at_its_size().training.items() if k not in varied}
        options = of_size | step.training | flattened(wanted.training)
        changed = axes.as_overrides("training", options)
        settings = [*changed, f"runs_dir={as_value(wanted.runs_dir)}"]
        every = axes.expand(params, parts, axes.run_overrides(settings))
        size, seed = options.get("sweep.sample"), options.get("sweep.sample_seed", 1)
        return PlannedSweep(
            str(options.get("sweep.name", step.sweep)),
            [f"{axes.GROUP}={step.sweep}", *settings],
            changed,
            [every[i] for i in axes.sample(len(every), size, seed)],
        )

    def _read(self, sweep: str) -> Axes:
        """The axes that the sweep's file sets."""
        plain: Any = listing.group_content(axes.GROUP, sweep, self._folders)
        if plain is None:
            overrides = [*self._common, "hydra/sweeper=lmkit"]
            plain = hydra.compose(f"{axes.GROUP}/{sweep}", overrides, return_hydra_config=True)
            plain = OmegaConf.to_container(plain)
        sweeper = plain["hydra"].get("sweeper", {})
        return sweeper.get("params") or {}, sweeper.get("parts") or []

    def _compose(self, line: Line) -> Config:
        # a transform's class is part of the run's name
        key = tuple(
            each
            for each in line
            if not is_idle(option := axes.option_of(each)) or option.endswith("._target_")
        )
        if key not in self._configs:
            self._configs[key] = self._composer.compose(line)
        return self._configs[key]


def finetuning_options(wanted: Reproduction) -> list[str]:
    """Overrides of every `lmkit finetune` of a reproduction."""
    return axes.as_overrides("finetuning", wanted.size.finetuning | flattened(wanted.finetuning))


def flattened(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by their whole names: +training.trainer.precision=tf32 makes nested sections."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat

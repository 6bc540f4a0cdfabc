"""The sweeper of `lmkit train`. Hydra imports this file whenever it starts: imports stay light."""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

# what each run resolves by its own options: all but this process's variables, Hydra and time
_OPTION = re.compile(r"\$\{(?!oc\.env:|hydra:|now:)")


def _own(resolved: Any, written: Any) -> Any:
    """Axes as they are written where they name options, and resolved elsewhere."""
    if isinstance(written, Mapping) and isinstance(resolved, Mapping):
        return {key: _own(resolved[key], value) for key, value in written.items()}
    if isinstance(written, list) and isinstance(resolved, Sequence):
        return [_own(*both) for both in zip(resolved, written, strict=True)]
    return written if isinstance(written, str) and _OPTION.search(written) else resolved


class LmkitSweeper(Sweeper):
    """Checks every point before launching the first; the same command resumes and skips.

    Args:
        params: axes common to all parts: an option and its values as on a command line.
        parts: further such axes; the sweep is the union of the parts.
    """

    hydra_context: HydraContext
    config: DictConfig  # composed for the sweep itself, with Hydra's own section
    task: TaskFunction

    def __init__(self, params: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> None:
        self.params, self.parts = params, parts

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes what `sweep` needs."""
        # Hydra has resolved ${option} by the sweep's own options: each run is to do so by its own
        as_written: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
        self.params = _own(self.params, as_written["params"])
        self.parts = _own(self.parts, as_written["parts"])
        self.hydra_context, self.config, self.task = hydra_context, config, task_function

    def sweep(self, arguments: list[str]) -> None:
        """Trains every point. Ends the program with status 1 when one has failed.

        Raises: UserError for what is wrong with the line or with one of its points.
        """
        # only now: other commands do without these imports
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.multirun import train_all

        if not train_all(self, arguments, config_reader()):
            sys.exit(1)

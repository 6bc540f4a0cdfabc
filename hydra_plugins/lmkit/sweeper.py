"""The sweeper of `lmkit train`. Hydra imports this file whenever it starts: imports stay light."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class LmkitSweeper(Sweeper):
    """Checks every point before the first is launched; the same line resumes and skips.

    Its launchers are those of lmkit.sweeps, since Hydra's know no locks, retries or outcomes.

    Args:
        params: axes common to all parts: an option and its values as on a command line.
        parts: further such axes; the sweep is the union of the parts.
    """

    def __init__(self, params: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> None:
        self._params, self._parts = _plain(params), _plain(parts)

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes what `sweep` needs; runs are processes of their own and do not call the task."""
        self.hydra_context, self.config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Trains every point. Ends the program with status 1 when one has failed.

        Raises: UserError for what is wrong with the line or with one of its points.
        """
        # only now: these bring what every other command of Hydra's does without
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.multirun import Request, train_all

        assert self.hydra_context is not None
        assert self.config is not None
        loader = self.hydra_context.config_loader
        request = Request(loader, self.config, arguments, self._params, self._parts)
        if not train_all(request, config_reader("train")):
            sys.exit(1)


def _plain(section: Any) -> Any:
    return OmegaConf.to_container(section) if OmegaConf.is_config(section) else section

"""The sweeper of `lmkit train`. Hydra imports this file whenever it starts: imports stay light."""

import sys
from collections.abc import Mapping, Sequence

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class LmkitSweeper(Sweeper):
    """Checks every point before launching the first; the same command resumes and skips.

    Args:
        params: axes common to all parts: an option and its values as on a command line.
        parts: further such axes; the sweep is the union of the parts.
    """

    def __init__(self, params: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> None:
        self._params, self._parts = params, parts

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes what `sweep` needs."""
        self.hydra_context, self.config, self._task = hydra_context, config, task_function

    def sweep(self, arguments: list[str]) -> None:
        """Trains every point. Ends the program with status 1 when one has failed.

        Raises: UserError for what is wrong with the line or with one of its points.
        """
        # only now: other commands do without these imports
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.multirun import Request, train_all

        assert self.hydra_context is not None
        assert self.config is not None
        request = Request(
            self.hydra_context, self._task, self.config, arguments, self._params, self._parts
        )
        if not train_all(request, config_reader()):
            sys.exit(1)

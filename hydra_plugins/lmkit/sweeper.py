"""The sweepers of `lmkit train`. Hydra imports this file whenever it starts: imports stay light."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from lmkit.sweeps.multirun import Request


class _Sweeper(Sweeper):
    """What both sweepers share.

    Their launchers are those of lmkit.sweeps, since Hydra's know no locks, retries or outcomes.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes what `sweep` needs; runs are processes of their own and do not call the task."""
        self.hydra_context, self.config = hydra_context, config

    def request(
        self,
        arguments: Sequence[str],
        params: Mapping[str, object],
        parts: Sequence[Mapping[str, object]] = (),
    ) -> Request:
        """What the command line and the sweeper's section ask for."""
        from lmkit.sweeps.multirun import Request  # only now, as below

        assert self.hydra_context is not None
        assert self.config is not None
        return Request(self.hydra_context.config_loader, self.config, arguments, params, parts)


class LmkitSweeper(_Sweeper):
    """Checks every point before launching the first; the same command resumes and skips.

    Args:
        params: axes common to all parts: an option and its values as on a command line.
        parts: further such axes; the sweep is the union of the parts.
    """

    def __init__(self, params: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> None:
        self._params, self._parts = _plain(params), _plain(parts)

    def sweep(self, arguments: list[str]) -> None:
        """Trains every point. Ends the program with status 1 when one has failed.

        Raises: UserError for what is wrong with the line or with one of its points.
        """
        # only now: other commands do without these imports
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.multirun import train_all

        request = self.request(arguments, self._params, self._parts)
        if not train_all(request, config_reader("train")):
            sys.exit(1)


class SearchSweeper(_Sweeper):
    """Has Optuna choose points by earlier points' valid perplexity; the same command resumes.

    Args:
        params: options and their values as on a command line, intervals too.
        n_trials: points in all.
        sampler: names an `optuna.samplers.BaseSampler`, which chooses, and its options.
    """

    def __init__(
        self, params: Mapping[str, object], n_trials: int, sampler: Mapping[str, object]
    ) -> None:
        self._params, self._n_trials, self._sampler = _plain(params), n_trials, _plain(sampler)

    def sweep(self, arguments: list[str]) -> None:
        """Trains the points. Ends the program with status 1 when one has failed.

        Raises: UserError for what is wrong with the line or with one of its points.
        """
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.search import search

        request = self.request(arguments, self._params)
        if not search(request, self._n_trials, self._sampler, config_reader("train")):
            sys.exit(1)


def _plain(section: Any) -> Any:
    return OmegaConf.to_container(section) if OmegaConf.is_config(section) else section

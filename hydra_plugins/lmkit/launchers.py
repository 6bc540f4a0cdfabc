"""The launchers of `lmkit train`. Hydra imports this file at each start: imports stay light."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra.utils import get_class
from omegaconf import DictConfig


class OwnLauncher(Launcher):
    """Trains points as processes of their own, from the sweep's folder, whichever sweeper asks.

    Args:
        trains: the class of what trains the points of a sweep.
        options: of that class, by the names in its file in conf/hydra/launcher.
    """

    def __init__(self, trains: str, **options: Any) -> None:
        self.train = get_class(trains)(**options)

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes what `launch` needs; runs are processes of their own and do not call the task."""
        self.hydra_context, self.config = hydra_context, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Trains the points with these overrides.

        Raises: UserError for what is wrong with one of them; StopRequested on a signal.
        """
        # only now: other commands do without these imports
        from lmkit.cli.entry import config_reader
        from lmkit.sweeps.multirun import launch

        return launch(self, job_overrides, config_reader(), follows=initial_job_idx > 0)

"""The end of a run that does worse than others of its search."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from lmkit.errors.user_error import UserError
from lmkit.runs.result import PRUNED
from lmkit.runs.search import Search
from lmkit.training.callbacks.stopping import Patience
from lmkit.training.context import RunContext
from lmkit.training.head_module import model_of


class Pruning(Patience):
    """Patience, plus ending a run that an Optuna pruner gives up by its valid perplexities.

    After each epoch the run reports its valid perplexity to the sweep's study. Resumed without the
    pruner, a pruned run reaches the same bits as one that was never pruned.

    Args:
        epochs: the patience.
        sweep: the name of the sweep that searches.
        trial: number of the run's trial in the sweep's study.
        pruner: an `optuna.pruners.BasePruner`; its steps are epochs.
        min_delta: as for patience.
    """

    search: Search
    state_key = Patience.__qualname__  # without the pruner a run resumes as one with patience

    def __init__(
        self,
        epochs: int | None,
        sweep: str | None,
        trial: int | None,
        pruner: Any,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(epochs, min_delta)
        if sweep is None or trial is None:
            raise UserError("stopping=pruning needs a search: add --multirun hydra/sweeper=search")
        self.sweep, self.trial, self.pruner = sweep, trial, pruner
        self.is_pruned = False

    def attach(self, run: RunContext) -> None:
        """Raises: UserError without the study of the run's sweep."""
        super().attach(run)
        self.search = Search(run.folder.path.parent / "sweeps" / self.sweep)

    @property
    def exhausted(self) -> bool:
        return self.is_pruned or super().exhausted

    @property
    def reason(self) -> str:
        return PRUNED if self.is_pruned else super().reason

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch, valid_ppl = trainer.current_epoch + 1, model_of(pl_module).epoch_metrics["valid/ppl"]
        is_worse = self.search.report(self.trial, epoch, valid_ppl, self.pruner)
        self.is_pruned = is_worse and epoch != trainer.max_epochs  # it has finished
        super().on_train_epoch_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {PRUNED: self.is_pruned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.is_pruned = state.get(PRUNED, False)

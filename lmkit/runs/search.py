"""The Optuna study of a sweep that searches; its launcher and its runs write it from any node.

<runs_dir>/sweeps/<name>/optuna.journal    a line for each change of a trial, as Optuna writes them

The runs' folders hold the truth. A launcher tells the study what its runs came to, and a trial that
was under way when all was killed goes on as the same trial.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError

JOURNAL = "optuna.journal"

_PRUNED_AT = "pruned_at"  # of a trial: the epoch after which its pruner gave it up


class Search:
    """A study, whose trials are points of the sweep, and the storage behind it.

    Args:
        sweep: the sweep's folder, which exists.
        is_new: whether the study is made where there is none.

    Raises: UserError without Optuna, or naming the journal when it is missing or damaged.
    """

    def __init__(self, sweep: Path, *, is_new: bool = False) -> None:
        require_optuna()
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = sweep / JOURNAL
        if not is_new and not path.is_file():
            raise UserError(f"{path} is missing: the line that started the sweep makes it anew")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        lock = JournalFileOpenLock(str(path))
        try:
            lock.acquire()
            try:
                _cut_torn_line(path)
            finally:
                lock.release()
            self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))
            name = sweep.name
            self.study: Any = optuna.create_study(
                storage=self._storage, study_name=name, load_if_exists=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path} cannot be read: {error}; remove it to search anew") from None
        self._id = self._storage.get_study_id_from_name(name)
        self._path = path

    def num_trials(self) -> int:
        """The number of trials with an outcome or under way."""
        return sum(trial.state.name != "FAIL" for trial in self.study.trials)

    def under_way(self, options: Collection[str]) -> list[Any]:
        """The trials that have no outcome, by number.

        One without a value for some of the `options` is called off: whoever began it was killed.
        """
        found = []
        for trial in self.study.trials:
            if trial.state.is_finished():
                continue
            if all(option in trial.params for option in options):
                found.append(trial)
            else:
                self.study.tell(trial.number, state=type(trial.state).FAIL)
        return found

    def best(self) -> Any:
        """The finished trial with the lowest valid perplexity; None where none has finished."""
        done = [trial for trial in self.study.trials if trial.state.name == "COMPLETE"]
        return min(done, key=lambda trial: trial.value, default=None)

    def report(self, number: int, epoch: int, valid_ppl: float, pruner: Any = None) -> bool:
        """Tells the study of an epoch of a trial that is under way. Returns: whether to prune it.

        Args:
            number: of the trial, from 0.
            epoch: from 1. Of an epoch that was told before, nothing changes.
            pruner: decides; None: the trial goes on.

        Raises: UserError for a trial that the study lacks.
        """
        try:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        except KeyError:
            raise UserError(f"{self._path} has no trial {number}: search anew") from None
        trial = self._storage.get_trial(trial_id)
        if trial.state.is_finished():
            return False
        if epoch not in trial.intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, epoch, valid_ppl)
        if pruner is None:
            return False
        # a run that is killed before it has saved repeats the epoch, and a pruner asked twice
        # may answer otherwise
        if trial.user_attrs.get(_PRUNED_AT) == epoch:
            return True
        if not pruner.prune(self.study, self._storage.get_trial(trial_id)):
            return False
        self._storage.set_trial_user_attr(trial_id, _PRUNED_AT, epoch)
        return True

    def tell(self, number: int, epochs: Sequence[tuple[int, float]], outcome: float | None) -> None:
        """Tells the study what became of a trial.

        Args:
            epochs: each with its valid perplexity.
            outcome: the best valid perplexity of a finished run; None: it was pruned.
        """
        import optuna

        for epoch, valid_ppl in epochs:
            self.report(number, epoch, valid_ppl)
        states = optuna.trial.TrialState
        state = states.PRUNED if outcome is None else states.COMPLETE
        if outcome is not None and not math.isfinite(outcome):
            outcome, state = None, states.FAIL
        self.study.tell(number, outcome, state=state, skip_if_finished=True)


def require_optuna() -> None:
    """Raises: UserError without an Optuna that keeps a study in a journal."""
    try:  # it is optional, and takes a second
        import optuna.storages.journal  # noqa: F401
    except ImportError:
        raise UserError("a search needs Optuna 4 or later: pip install 'optuna>=4'") from None


def _cut_torn_line(path: Path) -> None:
    """Removes what a full disk or a power loss left of a line, to which another would be joined."""
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)

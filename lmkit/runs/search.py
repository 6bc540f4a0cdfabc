"""The Optuna study of a search sweep, written by its launcher and its runs on any node.

<runs_dir>/sweeps/<name>/optuna.journal    a line per change of a trial, in Optuna's format

The runs' folders are authoritative. A launcher reports its runs' outcomes to the study, and a trial
that was running when everything was killed resumes as the same trial.
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
        is_new: whether to create the study if there is none.

    Raises: UserError without Optuna, or naming the journal when it is missing or damaged.
    """

    def __init__(self, sweep: Path, *, is_new: bool = False) -> None:
        require_optuna()
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = sweep / JOURNAL
        if not is_new and not path.is_file():
            raise UserError(f"{path} is missing: the command that started the sweep restores it")
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
            raise UserError(f"{path} cannot be read: {error}; remove it to search again") from None
        self._id = self._storage.get_study_id_from_name(name)
        self._path = path

    def num_trials(self) -> int:
        """The number of trials with an outcome or running."""
        return sum(trial.state.name != "FAIL" for trial in self.study.trials)

    def under_way(self, options: Collection[str]) -> list[Any]:
        """The trials that have no outcome, by number.

        One without a value for some of the `options` is marked failed: its creator was killed.
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
        """Reports an epoch of a running trial to the study. Returns: whether to prune it.

        Args:
            number: of the trial, from 0.
            epoch: from 1. One reported before changes nothing.
            pruner: decides; None: the trial continues.

        Raises: UserError for a trial that the study lacks.
        """
        try:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        except KeyError:
            raise UserError(f"{self._path} has no trial {number}: search again") from None
        trial = self._storage.get_trial(trial_id)
        if trial.state.is_finished():
            return False
        if epoch not in trial.intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, epoch, valid_ppl)
        if pruner is None:
            return False
        # a run killed before saving repeats the epoch, and a pruner may decide differently the
        # second time
        if trial.user_attrs.get(_PRUNED_AT) == epoch:
            return True
        if not pruner.prune(self.study, self._storage.get_trial(trial_id)):
            return False
        self._storage.set_trial_user_attr(trial_id, _PRUNED_AT, epoch)
        return True

    def tell(self, number: int, epochs: Sequence[tuple[int, float]], outcome: float | None) -> None:
        """Reports the outcome of a trial to the study. Args:
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
    """Raises UserError without an Optuna that can keep a study in a journal."""
    try:  # it is optional, and takes a second
        import optuna.storages.journal  # noqa: F401
    except ImportError:
        raise UserError("a search needs Optuna 4 or later: pip install 'optuna>=4'") from None


def _cut_torn_line(path: Path) -> None:
    """Removes an incomplete line left by a full disk or a power loss, to which another would be
    joined."""
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)

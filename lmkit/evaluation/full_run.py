"""A whole run: training and conclusion under one lock."""

from __future__ import annotations

from typing import Any

from lmkit.evaluation.conclusion import Conclusion, show
from lmkit.runs.folder import RunFolder
from lmkit.runs.leave import Leave
from lmkit.runs.lock import RunLock
from lmkit.training.build import make
from lmkit.training.run import check, define, train


def run(config: dict[str, Any]) -> RunFolder:
    """Trains a configuration to its end: from its start, from where it stopped, or not at all.

    Raises: UserError for whatever the user can mend; what was there before is kept.
    """
    defined = define(config)
    folder = defined.folder
    if folder.finished_within(defined.budget):
        print(f"already finished: {folder.path}")
        show(folder)
        return folder
    names = check(config, defined.source)
    conclusion: Conclusion = make(config["conclusion"], "conclusion", Conclusion)
    with Leave() as leave, RunLock(folder.lock) as lock:
        leave.at_once = True
        if folder.state() == "finished":
            if folder.finished_within(defined.budget):  # by another process, just now
                show(folder)
                return folder
            folder.reopen()
        conclusion.conclude(defined, train(defined, names, lock, leave))
    show(folder)
    return folder

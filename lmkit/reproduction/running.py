"""Runs the steps of a reproduction, by the commands that a user would type.

Each command skips what is finished and goes on where it stopped. So nothing is remembered here: a
reproduction that is started again types the same commands.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.reproduction.commands import Run
from lmkit.reproduction.points import PlannedSweep, finetuning_options
from lmkit.reproduction.steps import Reproduction
from lmkit.runs.finished import FinishedRun
from lmkit.runs.folder import RunFolder
from lmkit.runs.names import FINETUNE
from lmkit.runs.selection import select_runs
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.quoting import as_value, quoted
from lmkit.sweeps.status import standings


class Reproducing:
    """One reproduction, while it runs.

    Args:
        wanted: what is reproduced.
        sweeps: its sweeps, planned.
        launcher: overrides that choose where the sweeps' runs run.
        config_arguments: what tells every command of a user's own configurations.
        run: runs a command.
    """

    def __init__(
        self,
        wanted: Reproduction,
        sweeps: Sequence[PlannedSweep],
        *,
        launcher: Sequence[str],
        config_arguments: Sequence[str],
        run: Run,
    ) -> None:
        self.wanted, self.steps, self.sweeps = wanted, wanted.at_its_size(), sweeps
        self._launcher, self._config_arguments, self._run = launcher, config_arguments, run
        self.failed: list[str] = []  # commands that ended with an error

    def finish(self, out: str, title: str, about: str) -> None:
        """Runs all steps and writes the page.

        Args:
            out: its folder.
            title: its heading.
            about: what it begins with.

        Raises: UserError when a step leaves nothing for the next to go on with.
        """
        for sweep in self.sweeps:
            self._train(sweep)
        self._finetune()
        self._measure()
        for step in self.steps.studies:
            folder = as_value(f"{self.wanted.runs_dir}/synthetic")
            self._do(["study", step.study, f"runs_dir={folder}", *step.options])
        self._report(out, title, about)

    def _do(self, words: Sequence[str]) -> int:
        status = self._run([*words, *self._config_arguments])
        if status != 0:
            self.failed.append(f"lmkit {words[0]}")
        return status

    def _train(self, sweep: PlannedSweep) -> None:
        status = self._do(["train", *sweep.overrides, *self._launcher])
        try:
            every = standings(SweepFolder.find(sweep.name, self.wanted.runs_dir))
        except UserError:
            every = []
        num_done = sum(each.state == "done" for each in every)
        if status != 0 and not num_done:
            raise UserError(
                f"lmkit train {sweep.overrides[0]} has failed, as it says above; mend that, and "
                f"the same command goes on"
            )
        if status == 0 and num_done < len(every):
            raise UserError(
                f"{len(every) - num_done} of {len(every)} runs of {sweep.name} have not finished; "
                f"once they have, the same command goes on"
            )

    def _finetune(self) -> None:
        runs = self._trained()
        given = finetuning_options(self.wanted)
        for step in self.steps.finetunings:
            for run in _matching(runs, step.runs):
                where = as_value(str(run.folder.path))
                self._do(["finetune", f"run={where}", *step.options, *given])

    def _measure(self) -> None:
        if not self.steps.measures:
            return
        trained = self._trained()
        runs = [*trained, *self._finetuned(trained)]
        for step in self.steps.measures:
            matching = _matching(runs, step.runs)
            of_size = self.wanted.size.measures.get(step.command, [])
            if matching:
                where = _listed([str(run.folder.path) for run in matching])
                self._do([step.command, f"run={where}", *step.options, *of_size])
            else:
                print(f"lmkit {step.command}: no finished run is called {step.runs}")

    def _report(self, out: str, title: str, about: str) -> None:
        # all that a page begins with comes last: a line shows its options first
        words = ["report", *self.wanted.report, f"out={as_value(out)}"]
        words += [f"title={quoted(title)}", f"about={quoted(about)}"]
        studies = [
            f"{glob.escape(self.wanted.runs_dir)}/synthetic/{step.study}-*"
            for step in self.steps.studies
        ]
        words.append(f"synthetic={_listed(studies)}")
        places = [str(SweepFolder.find(s.name, self.wanted.runs_dir).path) for s in self.sweeps]
        places += [str(run.folder.path) for run in self._finetuned(self._trained())]
        words.append(f"runs={_listed(places) if places else 'null'}")
        self._do(words)

    def _trained(self) -> list[FinishedRun]:
        """The finished runs of all sweeps, each once."""
        places = [str(SweepFolder.find(s.name, self.wanted.runs_dir).path) for s in self.sweeps]
        return select_runs("runs", places).runs if places else []

    def _finetuned(self, starts: Sequence[FinishedRun]) -> list[FinishedRun]:
        """The finished runs that finetune those which a step says."""
        steps = self.steps.finetunings
        wanted = {
            run.folder.path.resolve() for step in steps for run in _matching(starts, step.runs)
        }
        places = [
            str(folder.path)
            for start, folder in finished_finetunings(self.wanted.runs_dir)
            if start in wanted
        ]
        return select_runs("runs", places).runs if places else []


def finished_finetunings(runs_dir: str) -> list[tuple[Path, RunFolder]]:
    """The finished runs in `runs_dir` that finetune a run, each after the folder of that run.

    One whose `config.yaml` is damaged counts as unfinished: `lmkit finetune` restores it.
    """
    found = []
    for folder in map(RunFolder, sorted(Path(runs_dir).glob(f"*{FINETUNE}-*"))):
        with suppress(UserError):
            if folder.state() == "finished" and (start := folder.started_from()) is not None:
                found.append((start, folder))
    return found


def _matching(runs: Sequence[FinishedRun], pattern: str) -> list[FinishedRun]:
    return [run for run in runs if fnmatchcase(run.name.rpartition("-")[0], pattern)]


def _listed(places: Sequence[str]) -> str:
    return f"[{','.join(map(as_value, places))}]"

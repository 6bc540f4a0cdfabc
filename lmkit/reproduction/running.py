"""Runs the steps of a reproduction: the commands that a user would type.

Each command skips what is finished and resumes where it stopped. So nothing is remembered here: a
restarted reproduction runs the same commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.reproduction.commands import Run
from lmkit.reproduction.points import PlannedSweep, finetuning_options
from lmkit.reproduction.steps import MeasureStep, Reproduction, RunsStep, StudyStep
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
        sweeps: of what is wanted, planned.
        launcher: overrides that choose where the sweeps' runs run.
        config_arguments: flags that give every command the user's own configurations.
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

    def commands(self, out: str, title: str, about: str) -> list[list[list[str]]]:
        """What `finish` runs, as one could type it: runs by their sweeps and names.

        Returns: of each sweep, finetuning, measurement and study, and of the report, the words
        after `lmkit` of its commands; several of a finetuning, one for each run.
        """
        names = [config["name"] for sweep in self.sweeps for config in sweep.configs]
        of_finetuned = {
            f"{name}{FINETUNE}": f"{self.wanted.runs_dir}/{name}{FINETUNE}-*"
            for name in names
            if self.steps.finetunes(name)
        }
        places = [*map(self._typed_sweep, self.sweeps), *of_finetuned.values()]
        steps: list[list[list[str]]] = [[self._train_words(sweep)] for sweep in self.sweeps]
        for step in self.steps.finetunings:
            steps.append([self._finetune_words(step, start) for start in self._starts(step)])
        for measure in self.steps.measures:
            where = _typed(self._measured(measure, of_finetuned))
            steps.append([self._measure_words(measure, where)])
        steps += [[self._study_words(study)] for study in self.steps.studies]
        steps.append([self._report_words(out, title, about, places)])
        return [[[*words, *self._config_arguments] for words in step] for step in steps]

    def _typed_sweep(self, sweep: PlannedSweep) -> str:
        return f"{self.wanted.runs_dir}/sweeps/{sweep.name}"

    def _starts(self, step: RunsStep) -> Iterator[str]:
        """The runs that a step finetunes, each by its sweep, its name and, of several, its seed."""
        for sweep in self.sweeps:
            names = [config["name"] for config in sweep.configs]
            for line, name in zip(sweep.lines, names, strict=True):
                if fnmatchcase(name, step.runs):
                    seeds = [each.replace("=", ":") for each in line if each.startswith("seed=")]
                    filters = [f"name:{name}", *(seeds if names.count(name) > 1 else [])]
                    yield _typed([" ".join([self._typed_sweep(sweep), *filters])])

    def _measured(self, step: MeasureStep, finetuned: Mapping[str, str]) -> list[str]:
        """The runs that a step measures: by their sweeps and a pattern of their names, or by the
        pattern of their folders.
        """
        places = []
        for sweep in self.sweeps:
            fits = [fnmatchcase(config["name"], step.runs) for config in sweep.configs]
            place = self._typed_sweep(sweep)
            if any(fits):
                places.append(place if all(fits) else f"{place} name:{step.runs}")
        return places + [
            folders for name, folders in finetuned.items() if fnmatchcase(name, step.runs)
        ]

    def finish(self, out: str, title: str, about: str) -> None:
        """Runs all steps and writes the page into `out`; it begins with `about`.

        Raises: UserError when a step leaves nothing that the next step can use.
        """
        for sweep in self.sweeps:
            self._train(sweep)
        self._finetune()
        self._measure()
        for step in self.steps.studies:
            self._do(self._study_words(step))
        finetuned = [str(run.folder.path) for run in self._finetuned(self._trained())]
        places = [*self._sweep_folders(), *finetuned]
        self._do(self._report_words(out, title, about, places))

    def _do(self, words: Sequence[str]) -> int:
        status = self._run([*words, *self._config_arguments])
        if status != 0:
            self.failed.append(f"lmkit {words[0]}")
        return status

    def _train(self, sweep: PlannedSweep) -> None:
        status = self._do(self._train_words(sweep))
        try:
            every = standings(SweepFolder.find(sweep.name, self.wanted.runs_dir))
        except UserError:
            every = []
        num_done = sum(each.is_finished for each in every)
        if status != 0 and not num_done:
            raise UserError(
                f"lmkit train {sweep.overrides[0]} has failed, as shown above; correct that, and "
                f"the same command resumes"
            )
        if status == 0 and num_done < len(every):
            raise UserError(
                f"{len(every) - num_done} of {len(every)} runs of {sweep.name} have not finished; "
                f"once they have, the same command resumes"
            )

    def _finetune(self) -> None:
        runs = self._trained()
        for step in self.steps.finetunings:
            for run in runs:
                if fnmatchcase(_name(run), step.runs):
                    self._do(self._finetune_words(step, as_value(str(run.folder.path))))

    def _measure(self) -> None:
        if not self.steps.measures:
            return
        trained = self._trained()
        runs = [*trained, *self._finetuned(trained)]
        for step in self.steps.measures:
            matching = [str(run.folder.path) for run in runs if fnmatchcase(_name(run), step.runs)]
            if matching:
                self._do(self._measure_words(step, _listed(matching)))
            else:
                print(f"lmkit {step.command}: no finished run is called {step.runs}")

    def _train_words(self, sweep: PlannedSweep) -> list[str]:
        return ["train", *sweep.overrides, *self._launcher]

    def _finetune_words(self, step: RunsStep, where: str) -> list[str]:
        return ["finetune", f"run={where}", *step.options, *finetuning_options(self.wanted)]

    def _measure_words(self, step: MeasureStep, where: str) -> list[str]:
        of_size = self.wanted.size.measures.get(step.command, [])
        return [step.command, f"run={where}", *step.options, *of_size]

    def _study_words(self, step: StudyStep) -> list[str]:
        folder = as_value(f"{self.wanted.runs_dir}/synthetic")
        return ["study", step.study, f"runs_dir={folder}", *step.options]

    def _report_words(self, out: str, title: str, about: str, places: Sequence[str]) -> list[str]:
        # all that a page begins with comes last: a line shows its options first
        words = ["report", *self.wanted.report, f"out={as_value(out)}"]
        words += [f"title={quoted(title)}", f"about={quoted(about)}"]
        return [*words, f"runs={_listed(places) if places else 'null'}"]

    def _sweep_folders(self) -> list[str]:
        found = (SweepFolder.find(sweep.name, self.wanted.runs_dir) for sweep in self.sweeps)
        return [str(folder.path) for folder in found]

    def _trained(self) -> list[FinishedRun]:
        """The finished runs of all sweeps, each once."""
        return _selected(self._sweep_folders())

    def _finetuned(self, starts: Sequence[FinishedRun]) -> list[FinishedRun]:
        """The finished finetunings of the runs that a step names."""
        wanted = {run.folder.path.resolve() for run in starts if self.steps.finetunes(_name(run))}
        every = finished_finetunings(self.wanted.runs_dir)
        return _selected([str(folder.path) for start, folder in every if start in wanted])


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


def _selected(places: list[str]) -> list[FinishedRun]:
    return select_runs("runs", places).runs if places else []


def _name(run: FinishedRun) -> str:
    return run.name.rpartition("-")[0]


def _typed(places: Sequence[str]) -> str:
    """Runs as a person types them: a single place without Hydra's quotes where it needs none."""
    is_plain = len(places) == 1 and re.fullmatch(r"[\w./*][\w./*: =-]*", places[0], re.ASCII)
    return places[0] if is_plain else _listed(places)


def _listed(places: Sequence[str]) -> str:
    return f"[{','.join(map(as_value, places))}]"

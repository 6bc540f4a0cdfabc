"""The commands of a reproduction, as a user would type them, and about how long its runs take."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from hydra.core.global_hydra import GlobalHydra

from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import rough_duration
from lmkit.presentation.tables import counted
from lmkit.reproduction.steps import MeasureStep, Reproduction, RunsStep, SweepStep
from lmkit.results.published import published
from lmkit.runs.identity import leaves
from lmkit.runs.names import FINETUNE, name_with_head
from lmkit.runs.quoting import as_value, quoted
from lmkit.sweeps import axes
from lmkit.sweeps.axes import Line
from lmkit.sweeps.status import finished_runs

# What a sweep's file varies: what is common to all parts, and the parts.
Axes = tuple[Mapping[str, object], Sequence[Mapping[str, object]]]


class PlannedSweep(NamedTuple):
    name: str  # of its folder
    overrides: list[str]  # of `lmkit train`
    changed: list[str]  # of these, what the sweep's file does not say
    runs: list[tuple[str, Line]]  # the name of each run, and its overrides


class PlannedCommand(NamedTuple):
    words: list[str]  # after `lmkit`
    trains: Sequence[str] = ()  # the names of the runs that it trains
    sweep: str = ""  # the name of the sweep that it trains


def plan_sweep(step: SweepStep, wanted: Reproduction, of_file: Axes) -> PlannedSweep:
    """The sweep at the size that is chosen, expanded.

    Args:
        of_file: what the sweep's file varies.

    Raises: UserError, or what Hydra raises, for an option or a name that is wrong.
    """
    params, parts = of_file
    varied = {option for each in (params, *parts) for option in each}
    of_size = {k: v for k, v in wanted.size.training.items() if k not in varied}
    options = of_size | step.training | dict(leaves(wanted.training))
    changed = axes.as_overrides("training", options)
    settings = [*changed, f"runs_dir={as_value(wanted.runs_dir)}"]
    loader = GlobalHydra.instance().config_loader()
    every = axes.expand(params, parts, axes.run_overrides(settings), loader)
    size, seed = options.get("sweep.sample"), options.get("sweep.sample_seed", 1)
    lines = [every[i] for i in axes.sample(len(every), size, seed)]
    name = str(options.get("sweep.name", step.sweep))
    overrides = [f"{axes.GROUP}={step.sweep}", *settings]
    return PlannedSweep(name, overrides, changed, [(_name_of(line), line) for line in lines])


def _name_of(line: Line) -> str:
    """What a run of these options is called: its name, or its experiment and its head."""
    chosen = _chosen(line)
    return name_with_head(chosen.get("name", chosen.get("experiment", "toy")), line)


def commands(
    wanted: Reproduction, sweeps: Sequence[PlannedSweep], launcher: Sequence[str], out: str
) -> list[PlannedCommand]:
    """All commands, in order: of each sweep, finetuning, measurement and study, and of the page
    where there are runs.

    Args:
        launcher: overrides that choose where the sweeps' runs run.
        out: folder for the page.
    """
    every = [
        PlannedCommand(
            ["train", *sweep.overrides, *launcher], [name for name, _ in sweep.runs], sweep.name
        )
        for sweep in sweeps
    ]
    of_finetuning = wanted.size.finetuning | dict(leaves(wanted.finetuning))
    finetuning = axes.as_overrides("finetuning", of_finetuning)
    for step in wanted.finetunings:
        for name, where in _starts(step, wanted, sweeps):
            words = ["finetune", f"run={where}", *step.options, *finetuning]
            every.append(PlannedCommand(words, [name + FINETUNE]))
    for measure in wanted.measures:
        if measured := _measured(measure, wanted, sweeps):
            more = [*measure.options, *wanted.size.measures.get(measure.command, [])]
            every.append(PlannedCommand([measure.command, f"run={_typed(measured)}", *more]))
    for study in wanted.studies:
        folder = as_value(f"{wanted.runs_dir}/synthetic")
        words = ["study", study.study, f"runs_dir={folder}", *study.options]
        every.append(PlannedCommand(words))
    if sweeps:
        every.append(PlannedCommand(_report(wanted, sweeps, out)))
    return every


def in_words(command: PlannedCommand, runs_dir: str) -> str:
    """`66 runs; about 3 d of training` by finished runs of the same names; "" without runs."""
    if not command.trains:
        return ""
    seconds = {name: _usual_seconds(runs_dir, name) for name in dict.fromkeys(command.trains)}
    runs = counted(len(command.trains), "run")
    known = [each for name in command.trains if (each := seconds[name]) is not None]
    if not known:
        return f"{runs}; no estimate: none of that name has finished"
    unknown = len(command.trains) - len(known)
    more = f" and {unknown:,} of unknown time" if unknown else ""
    return (
        f"{runs}; about {rough_duration(sum(known))}{more} of training, by runs that have finished"
    )


def _usual_seconds(runs_dir: str, name: str) -> float | None:
    """The median time that finished runs of a name trained."""
    found = [
        seconds * result.budget.epochs
        for _, result in finished_runs(Path(runs_dir), name)
        if (seconds := result.cost.get("seconds_per_epoch"))
    ]
    return statistics.median(found) if found else None


def _place(wanted: Reproduction, sweep: PlannedSweep) -> str:
    return f"{wanted.runs_dir}/sweeps/{sweep.name}"


def _finetuned(wanted: Reproduction, sweeps: Sequence[PlannedSweep]) -> dict[str, str]:
    """The patterns of the folders of finetuned runs, by their names."""
    names = dict.fromkeys(name for sweep in sweeps for name, _ in sweep.runs)
    return {
        f"{name}{FINETUNE}": f"{wanted.runs_dir}/{name}{FINETUNE}-*"
        for name in names
        if wanted.finetunes(name)
    }


def _starts(
    step: RunsStep, wanted: Reproduction, sweeps: Sequence[PlannedSweep]
) -> Iterator[tuple[str, str]]:
    """The runs that a step finetunes: the name of each, and the run by its sweep, its name and, of
    several, its seed and other options.

    Raises: UserError for runs that these do not tell apart.
    """
    for sweep in sweeps:
        for name, line in sweep.runs:
            if fnmatchcase(name, step.runs):
                alike = [other for called, other in sweep.runs if called == name]
                if (filters := _filters(line, alike)) is None:
                    raise UserError(
                        f"finetunings: runs of {sweep.name} are all called {name}, and seeds and "
                        f"options of sections, such as optimizer.lr, do not tell them apart: give "
                        f"them names"
                    )
                place = _place(wanted, sweep)
                yield name, _typed([" ".join([place, f"name:{name}", *filters])])


def _filters(line: Line, alike: Sequence[Line]) -> list[str] | None:
    """The seed and options of sections that tell a run apart from others of its name, as filters;
    None where they do not."""
    others = [_chosen(other) for other in alike if other != line]
    apart = {
        option: value
        for option, value in _chosen(line).items()
        if ("." in option or option == "seed") and any(o.get(option) != value for o in others)
    }
    for other in others:
        if not any(other.get(option, value) != value for option, value in apart.items()):
            return None
    return [f"{option}:{value}" for option, value in apart.items()]


def _chosen(line: Line) -> dict[str, str]:
    return {axes.option_of(each): each.partition("=")[2] for each in line}


def _measured(step: MeasureStep, wanted: Reproduction, sweeps: Sequence[PlannedSweep]) -> list[str]:
    """The runs that a step measures: by their sweeps and a pattern of their names, or by the
    pattern of their folders."""
    places = []
    for sweep in sweeps:
        fits = [fnmatchcase(name, step.runs) for name, _ in sweep.runs]
        place = _place(wanted, sweep)
        if any(fits):
            places.append(place if all(fits) else f"{place} name:{step.runs}")
    finetuned = _finetuned(wanted, sweeps).items()
    return places + [folders for name, folders in finetuned if fnmatchcase(name, step.runs)]


def _report(wanted: Reproduction, sweeps: Sequence[PlannedSweep], out: str) -> list[str]:
    places = [_place(wanted, sweep) for sweep in sweeps]
    places += _finetuned(wanted, sweeps).values()
    # all that a page begins with comes last: a line shows its options first
    title = quoted(f"{wanted.paper}, {wanted.table}")
    words = ["report", *wanted.report, f"out={as_value(out)}", f"title={title}"]
    if wanted.paper in set(published()["paper"]):
        words.append(f"paper={title}")
    words.append(f"about={quoted(_about(wanted, sweeps))}")
    return [*words, f"runs={_listed(places)}"]


def _about(wanted: Reproduction, sweeps: Sequence[PlannedSweep]) -> str:
    """What the page says about the size of its runs."""
    size = wanted.size
    lines = [f"{wanted.paper}, {wanted.table}, at size={size.name}. {size.about}."]
    alike = [each for each in sweeps[0].changed if all(each in s.changed for s in sweeps)]
    apart = [(s.name, [each for each in s.changed if each not in alike]) for s in sweeps]
    for whose, changed in [("its runs", alike), *apart]:
        changed = [each for each in changed if not each.startswith("sweep.name=")]
        if changed:
            lines.append(f"Options of {whose}: {', '.join(changed)}.")
    return " ".join(lines)


def _typed(places: Sequence[str]) -> str:
    """Runs as a person types them: a single place without Hydra's quotes where it needs none."""
    if len(places) > 1:
        return _listed(places)
    is_plain = re.fullmatch(r"[\w./*][\w./*: =-]*", places[0], re.ASCII)
    return places[0] if is_plain else as_value(places[0])


def _listed(places: Sequence[str]) -> str:
    return f"[{','.join(map(as_value, places))}]"

"""One experiment, from its lock to its record: its folder, its pieces of work, what it shows."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
import yaml
from rich.console import Console
from rich.markup import escape

from lmkit.errors.user_error import require_choice, require_count
from lmkit.presentation.figures import save
from lmkit.runs.atomic import remove_leftovers, replace_atomically
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import Identity, identity_of
from lmkit.runs.lock import RunLock
from lmkit.runs.provenance import provenance
from lmkit.studies.record import (
    RECORD,
    SCHEMA_VERSION,
    Findings,
    Record,
    Table,
    publish_record,
    read_record,
)
from lmkit.studies.work import Work

# Each a module of this house with its Options and a function `run(options, seed, work)`.
EXPERIMENTS = ("mode_matching", "rank_bounds", "toy_rank", "degenerate", "cost")
# Counted up whenever the same options would give other numbers.
STUDY_VERSION = 1


@dataclass(frozen=True)
class Study:
    """What an experiment is, before anything of it is done."""

    experiment: str
    options: object  # the Options of the experiment's module
    config: dict[str, object]  # all that decides the numbers
    identity: Identity
    path: Path


def run(config: dict) -> Path:
    """Does an experiment to its end: anew, or on from where it stopped, or not at all if done.

    Raises: UserError for an option, or a folder, that the user can mend.
    """
    study = define(config)
    if (study.path / RECORD).exists():
        print(f"already finished: {study.path}")
    else:
        with RunLock(study.path.with_name(f"{study.path.name}.lock")) as lock:
            if not (study.path / RECORD).exists():  # by another process, just now
                _do(study, config["progress_bar"], lock)
    show(study.path)
    return study.path


def define(config: dict) -> Study:
    """Checks the options, and finds the experiment's identity and folder."""
    experiment = config["study"]
    require_choice("study", experiment, EXPERIMENTS)
    require_count("threads", config["threads"])
    require_count("seed", config["seed"], 0)
    options = _module(experiment).Options(**config[experiment])
    decides = {
        "study_version": STUDY_VERSION,
        "experiment": experiment,
        "seed": config["seed"],
        "threads": config["threads"],
        experiment: config[experiment],
    }
    identity = identity_of(decides)
    folder = RunFolder.of(config["runs_dir"], experiment, identity)
    return Study(experiment, options, decides, identity, folder.path)


def show(path: Path) -> None:
    """Prints what a finished experiment says of each claim, and where its figures are."""
    record = read_record(path / RECORD)
    console = Console(highlight=False)
    for claim in record.claims:
        verdict = "[green]holds[/]" if claim["holds"] else "[red]does not hold[/]"
        console.print(f"{verdict}: {escape(claim['claim'])} ({escape(claim['source'])})")
        console.print(f"    {escape(claim['evidence'])}", style="dim")
    seconds, cpu_seconds = record.cost["seconds"], record.cost["cpu_seconds"]
    took = f"{seconds:.0f} s, {cpu_seconds:.0f} s of CPU time"
    console.print(f"record:  {escape(str(path / RECORD))} ({took})", soft_wrap=True)
    for figure in record.figures:
        console.print(f"figure:  {escape(str(path / figure))}", soft_wrap=True)


def _do(study: Study, progress_bar: bool, lock: RunLock) -> None:
    study.path.mkdir(parents=True, exist_ok=True)
    remove_leftovers(study.path)
    text = yaml.safe_dump(study.config, sort_keys=False)
    replace_atomically(study.path / "config.yaml", lambda file: file.write(text.encode()))
    torch.set_num_threads(study.config["threads"])
    with Work(study.path / "pieces.jsonl", progress_bar) as work:
        found = _module(study.experiment).run(study.options, study.config["seed"], work)
    lock.check()
    for name, figure in found.figures.items():
        save(figure, study.path / f"{name}.svg")
    publish_record(study.path / RECORD, _record(study, found, work.cost()))


def _record(study: Study, found: Findings, cost: dict[str, float]) -> Record:
    made_by = provenance("", study.config["threads"])  # no corpus: all is drawn from the seed
    return Record(
        schema_version=SCHEMA_VERSION,
        experiment=study.experiment,
        config=study.config,
        tables={name: _plain(table) for name, table in found.tables.items()},
        claims=[claim._asdict() | {"figure": f"{claim.figure}.svg"} for claim in found.claims],
        figures=[f"{name}.svg" for name in found.figures],
        cost=dict(cost),
        provenance={key: value for key, value in made_by.items() if key != "data_sha256"},
    )


def _plain(table: Table) -> dict[str, list]:
    return {"columns": list(table.columns), "rows": [list(row) for row in table.rows]}


def _module(experiment: str) -> ModuleType:
    return importlib.import_module(f"lmkit.studies.{experiment}")

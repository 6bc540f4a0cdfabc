"""Runs a study to its end: its identity, its folder with a lock, its record, what it prints."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
import yaml
from hydra.utils import get_object
from rich.console import Console
from rich.markup import escape

from lmkit.errors.user_error import UserError, require_count, require_folder, require_threads
from lmkit.presentation.figures import save, save_pdf
from lmkit.presentation.style import house_style
from lmkit.runs.atomic import remove_leftovers, replace_atomically
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import foreign_targets, identity_of
from lmkit.runs.lock import RunLock
from lmkit.runs.provenance import provenance
from lmkit.runs.source import option_defaults
from lmkit.runs.study_record import (
    RECORD,
    SCHEMA_VERSION,
    StudyRecord,
    columns_and_rows,
    publish_record,
    read_record,
)
from lmkit.studies.study import SyntheticStudy
from lmkit.studies.work import Work


class StudyRun:
    """A study with all that decides its numbers; making one touches no file.

    Args:
        study: made with the options.
        name: of the study's YAML file.
        options: its section, composed and plain, with the sections of its heads.
        runs_dir: the study's folder is <runs_dir>/<name>-<identity>.
        seed: of every random draw.
        threads: CPU threads, which decide the order of summation.
    """

    def __init__(
        self,
        study: SyntheticStudy,
        *,
        name: str,
        options: Mapping[str, object],
        runs_dir: str,
        seed: int,
        threads: int,
    ) -> None:
        require_threads(threads)
        require_count("seed", seed, 0)
        require_folder("runs_dir", runs_dir)
        self.study, self.name, self.seed, self.threads = study, name, seed, threads
        self.settings: dict[str, object] = {
            "study": name,
            "version": study.version,
            "seed": seed,
            "threads": threads,
            "options": dict(options),
            "sources": _foreign_sources(options),
        }
        decides = {**self.settings, "options": _without_defaults(options)}
        self.path = RunFolder.of(runs_dir, name, identity_of(decides)).path

    def finish(self, *, progress_bar: bool) -> None:
        """Runs the study: from scratch, from where it stopped, or not at all if it has finished.

        Raises: UserError for a folder problem that the user can correct.
        """
        record = self.path / RECORD
        lock = RunLock(self.path.with_name(f"{self.path.name}.lock"))
        if record.exists():
            self._tidy(lock)
            print(f"already finished: {self.path}")
            return
        with lock:
            if not record.exists():  # another process may have finished it just now
                self._finish(progress_bar, lock)

    def _tidy(self, lock: RunLock) -> None:
        """Removes what a process killed after publishing the record left."""
        locks = self.path.parent.glob(f"*{self.path.name}.lock*")
        if any(locks) or any(self.path.rglob(".*.tmp")):
            with suppress(UserError), lock:  # another process's, or nothing may be written here
                remove_leftovers(self.path, lock.check)

    def _finish(self, progress_bar: bool, lock: RunLock) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path, lock.check)
        text = yaml.safe_dump(self.settings, sort_keys=False)
        replace_atomically(
            self.path / "config.yaml", lambda file: file.write(text.encode()), lock.check
        )
        torch.set_num_threads(self.threads)
        with Work(self.path / "pieces.jsonl", progress_bar, lock.check) as work:
            tables = self.study.run(self.seed, work)
        lock.check()
        with house_style():
            figures = self.study.figures(tables)
            for name, figure in figures.items():
                save(figure, self.path / f"{name}.svg", lock.check)
                save_pdf(figure, self.path / f"{name}.pdf", lock.check)
        made_by = provenance("", self.threads)  # no corpus: all is drawn from the seed
        record = StudyRecord(
            schema_version=SCHEMA_VERSION,
            experiment=self.name,
            config=self.settings,
            tables={name: columns_and_rows(rows) for name, rows in tables.items()},
            claims=[
                claim._asdict() | {"figure": f"{claim.figure}.svg"}
                for claim in self.study.claims(tables)
            ],
            figures=[f"{name}.svg" for name in figures],
            figure_sha256={
                file: hashlib.sha256((self.path / file).read_bytes()).hexdigest()
                for name in figures
                for file in (f"{name}.svg", f"{name}.pdf")
            },
            cost=work.cost(),
            provenance={key: value for key, value in made_by.items() if key != "data_sha256"},
        )
        publish_record(self.path / RECORD, record)


def show(path: Path) -> None:
    """Prints a finished study's verdict on each claim, and where its figures are."""
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


def _without_defaults(options: Mapping[str, object]) -> dict[str, object]:
    """The options except those at their class's default, so that a new option renames no study."""
    defaults = option_defaults(str(options["_target_"])) if "_target_" in options else {}
    return {k: v for k, v in options.items() if k not in defaults or defaults[k] != v}


def _foreign_sources(options: Mapping[str, object]) -> dict[str, str]:
    """The hash of the file of each class outside lmkit, which may change under the same name."""
    return {name: _source_sha256(name) for name in sorted(set(foreign_targets(options)))}


def _source_sha256(target: str) -> str:
    try:
        file = inspect.getsourcefile(get_object(target))
    except TypeError:  # built into Python, or compiled
        file = None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""

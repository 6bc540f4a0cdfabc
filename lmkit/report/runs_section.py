"""Which runs the report is about: their groups, where they were trained, and by which code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lmkit.comparison.groups import Study
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Row, Table, number, whole
from lmkit.runs.finished import FinishedRun


def runs_section(study: Study) -> Section:
    """Every run in full precision, and what made them."""
    return Section(
        "runs",
        "Runs",
        f"{sum(len(group.runs) for group in study.groups)} runs of {len(study.groups)} groups; a "
        "group is runs that differ by their seed alone.",
        [_runs_table(study), _origins_table(study)],
    )


def _runs_table(study: Study) -> Table:
    rows: list[Row] = []
    for group in study.groups:
        for run in group.runs:
            rows.append(
                [
                    run.name,
                    group.label,
                    whole(run.seed),
                    whole(run.result.budget.epochs),
                    whole(run.metric("best_epoch")),
                    *(number(run.metric(f"{split}_ppl")) for split in ("train", "valid", "test")),
                    whole(run.test_spectrum.get("press_rank")),
                    number(run.cost("seconds_per_epoch"), 1),
                ]
            )
    columns = (
        "run",
        "head",
        "seed",
        "epochs",
        "best epoch",
        "train perplexity",
        "valid perplexity",
        "test perplexity",
        "Press rank",
        "s / epoch",
    )
    return Table("runs", "Every run", f"Every run on {study.short}.", columns, rows)


def _origins_table(study: Study) -> Table:
    origins = Counter(_origin(run) for group in study.groups for run in group.runs)
    rows: list[Row] = [[*origin, count] for origin, count in origins.most_common()]
    columns = ("code", "torch", "device", "threads", "runs")
    return Table("origins", "What made them", "Code and machines of the runs.", columns, rows)


def _origin(run: FinishedRun) -> tuple[str, str, str, str]:
    """Code, version of torch, device and threads."""
    made_by: Mapping[str, Any] = run.result.provenance
    git, hardware = made_by.get("git") or {}, made_by.get("hardware") or {}
    code = str(git.get("commit", "unknown"))[:10] + (" and changes" if git.get("dirty") else "")
    devices = hardware.get("devices") or [hardware.get("cpu") or "unknown"]
    torch = (made_by.get("packages") or {}).get("torch")
    return code, str(torch), ", ".join(map(str, devices)), str(made_by.get("threads"))

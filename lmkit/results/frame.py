"""Runs as one data frame: a row a run, a column a fact.

    name, folder, state, reason      state: finished, failed, damaged, unfinished or running
    experiment, seed                 as the run was started
    head, family, place              of the head: its name in tables, in options, and its order
    trunk, corpus, trigger           as tables name them; trunk_of: whose outputs a fixed trunk has
    epochs, max_epochs, stopped, …   how many epochs it has completed, and what ended it
    train_ppl, valid_ppl, test_ppl   and all other metrics of `result.json`
    rank.press@10000                 a measure of log P over so many contexts of the test split
    cost.parameters                  what it cost
    optimizer.lr, head.transform.c   every option that decides its numbers, by its dotted name
    data.train_tokens                the options of its corpus
    logits.rank                      a field of `analysis/logits.json`, whatever measured it
    evaluate@other.ppl               the same, measured on another text than the run's own
    code.sha256, code.has_changed    what computed it

The index is the name of the run's folder. A value that a run lacks is missing in its row.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lmkit.errors.user_error import UserError, did_you_mean, require_list
from lmkit.results.labels import SOURCES
from lmkit.runs.analysis_files import MEASURE_AGAIN, analyses_in
from lmkit.runs.checksums import sha256_of_values
from lmkit.runs.folder import FinishedRun, RunFolder, read_finished, standing
from lmkit.runs.identity import PATIENCE, leaves
from lmkit.runs.metrics import MetricsFile, epochs_done, merged
from lmkit.runs.names import FINETUNE, RunNames
from lmkit.runs.result import Budget
from lmkit.runs.selection import select_folders
from lmkit.runs.source import option_defaults
from lmkit.runs.train_log import has_diverged

# columns of whole numbers of which some are missing lie one by one, and these are many
warnings.filterwarnings("ignore", category=pd.errors.PerformanceWarning, module=r"lmkit\.")

Row = dict[str, object]

PERPLEXITIES = ("train_ppl", "valid_ppl", "test_ppl")
SECTIONS = (
    *("trunk", "head", "module", "objective", "optimizer", "schedule", "trigger"),
    *("windows", "trainer", "callbacks", "stopping", "sources"),
)
# Options that change no number's meaning, must equal the trunk's, or are in the head's name.
SAME = (
    *("head.in_dim", "head.chunk_mb", "head.loss", "head.mixture.in_dim"),
    *("head.mixture.hidden_dim",),
    *("head.mixture.out_dim", "head.mixture.num_layers", "head.transform.frozen"),
    *("trainer.deterministic", "windows.eval_length", "windows.eval_batch_size"),
)
WIDTHS = ("head.emb_dim", "head.mixture.emb_dim")  # E, as a rule the trunk's
_ALWAYS = (  # whatever the runs
    *("name", "folder", "state", "reason", "experiment", "seed", "head", "family", "place"),
    *("trunk", "trunk_of", "corpus", "trigger", "finetuned", "epochs", "stopped", "data_sha256"),
    *PERPLEXITIES,
)
_RANKS = {
    "press_rank": "press",
    "entropy_rank": "entropy",
    "stable_rank": "stable",
    "participation_ratio": "participation",
}
_RANK_FILE = re.compile(r"rank_test_log_probs_\d+")
_STORED = "analysis"  # of a row until all are read: what analyses stored, by the stem of its file
_ABOUT_A_FILE = ("schema_version", "kind")
_FAILED = 2  # times the median perplexity


def results(
    runs: str | Path | list[str], runs_dir: str = "runs", columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """The runs that were begun, a row each; `results("runs").query("state == 'finished'")`.

    Args:
        runs: as commands take them: a folder of runs, a run, a sweep, a pattern, with filters.
        runs_dir: the folder in whose `sweeps` a sweep's name is looked up.
        columns: names or patterns such as `optimizer.*`, in the order wanted; None: all.

    Raises: UserError when no run is selected, or none has one of the columns.
    """
    if columns is not None:
        require_list("columns", columns, "['seed', 'test_ppl']")
    runs = str(runs) if isinstance(runs, Path) else runs
    folders, _, damaged = select_folders("runs", runs, runs_dir)
    found = frame(folders, damaged)
    return found if columns is None else found[chosen(found, columns)]


def frame(folders: Iterable[RunFolder], damaged: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The runs in these folders that were begun.

    Args:
        damaged: further runs that cannot be read, by name, with the reason.
    """
    rows = [row for folder in folders if (row := _row(folder)) is not None]
    _add_analyses(rows)
    rows += [{"name": n, "state": "damaged", "reason": why} for n, why in (damaged or {}).items()]
    add_defaults(rows)
    rows = [without_the_trunks_width(row) for row in rows]
    columns = dict.fromkeys(column for row in rows for column in row)
    data = {column: _column([row.get(column) for row in rows]) for column in columns}
    table = pd.DataFrame({name: pd.Series(dtype=object) for name in _ALWAYS} | data)
    return judged(table.set_index("name"))


def chosen(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns that names and patterns mean; `name` is none of them, since every row has it.

    Raises: UserError for one that none has.
    """
    names: dict[str, None] = {}
    for column in columns:
        if column == table.index.name:
            continue
        matching = [name for name in table.columns if fnmatchcase(name, column)]
        if not matching:
            near = did_you_mean(column, list(table.columns))
            raise UserError(f"columns: no run has {column!r}{near}; lmkit runs csv=true shows all")
        names |= dict.fromkeys(matching)
    return list(names)


def options_in(table: pd.DataFrame) -> list[str]:
    """The columns that are options which tell runs apart, without the seed. `SAME` are none, but
    for a class of the user's own, whose options may mean anything.
    """
    return [
        c for c in table.columns if is_option(c) and (c not in SAME or _is_of_the_user(table, c))
    ]


def without_the_trunks_width(row: Row) -> Row:
    """The row without E, a context's dimension, where it is the trunk's and so no own option."""
    width = row.get("trunk.emb_dim")
    return {k: v for k, v in row.items() if k not in WIDTHS or v != width}


def head_options(table: pd.DataFrame) -> list[str]:
    """Of `options_in`, those of the head, and the sources of its classes that are a user's own."""
    named = [c for c in table.columns if c.startswith("head.") and c.endswith("_target_")]
    sources = {f"{SOURCES}{path}" for column in named for path in table[column].dropna().unique()}
    return [o for o in options_in(table) if o.startswith("head.") or o in sources]


def is_option(column: str) -> bool:
    """Whether it is the dotted name of an option that decides a run's numbers."""
    section, dot, _ = column.partition(".")
    return bool(dot) and section in SECTIONS


def _is_of_the_user(table: pd.DataFrame, option: str) -> bool:
    section = option.rpartition(".")[0]
    if section not in ("head", "head.mixture", "head.transform") or option == "head.chunk_mb":
        return False
    targets = table.loc[table[option].notna(), f"{section}._target_"].dropna()
    return not targets.str.startswith("lmkit.").all()


def ranks_in(table: pd.DataFrame, measure: str = "press") -> dict[int, str]:
    """The columns with a measure of log P on test, by the number of contexts."""
    named = ((column, column.partition("@")) for column in table.columns)
    return {int(n): column for column, (what, _, n) in named if what == f"rank.{measure}"}


def _row(folder: RunFolder) -> Row | None:
    """All that is known of a run; None where nothing was begun."""
    row: Row = {"name": folder.path.name, "folder": str(folder.path), "state": "finished"}
    try:
        state = standing(folder)
        if state == "new":
            return None
        if state == "finished":
            return row | {"reason": None} | _finished(read_finished(folder))
        if state == "unfinished" and has_diverged(folder.log):
            config = folder.read_config()
            row |= {"state": "failed"} | _under_way(folder) | Budget.of(config)._asdict()
            return row | _stopping(config) | {"finetuned": _start(folder, str(row["experiment"]))}
        return row | {"state": state} | _under_way(folder)
    except (UserError, PermissionError) as error:
        reason = str(error).replace(f"{folder.path}/", "")
        return row | {"state": "damaged", "reason": reason}


def _finished(run: FinishedRun) -> Row:
    result = run.result
    config: Mapping[str, Any] = {}
    unread: list[str] = []
    try:
        config = run.folder.read_config()
    except UserError as error:  # the identity decides the numbers
        unread.append(str(error).replace(f"{run.folder.path}/", ""))
    row = _names(run.names, config) | {
        "experiment": result.experiment,
        "finetuned": _start(run.folder, result.experiment),
        **vars(result.budget),
    }
    metrics = {k: v for k, v in result.metrics.items() if not k.endswith("_spectrum")}
    row |= flat(metrics)
    spectrum = _mapping(result.metrics.get("test_spectrum"))
    row |= {"contexts": spectrum.get("num_contexts"), "words": spectrum.get("num_columns")}
    row |= ranks_of(spectrum)
    row |= flat(result.cost, "cost.")
    row |= _of_settings(run.settings)
    row |= _stopping(config)
    row |= flat(_mapping(config.get("data")), "data.")
    row[_STORED], damaged = analyses_in(run.folder)
    unread += [f"{file}: {why}" for file, why in damaged.items()]
    row |= {"unread": "; ".join(unread)} if unread else {}
    provenance = result.provenance
    git = _mapping(provenance.get("git"))
    return row | {
        "code.sha256": "+".join(result.codes) or None,
        "code.commit": git.get("commit"),
        "code.dirty": git.get("dirty"),
        "code.has_changed": run.code_has_changed(),
        "code.lmkit": _mapping(provenance.get("packages")).get("lmkit"),
        "code.torch": "+".join(result.torch_versions) or None,
    }


def _add_analyses(rows: Iterable[Row]) -> None:
    """What analyses stored. Of each only the newest version among the runs: the same fields of an
    older one may mean other numbers, and it counts as unread.
    """
    stored = [(row, _mapping(row.pop(_STORED, None))) for row in rows]
    newest: dict[str, int] = {}
    for _, analyses in stored:
        for stem, content in analyses.items():
            newest[stem] = max(newest.get(stem, 0), _version(content))
    for row, analyses in stored:
        for stem, content in analyses.items():
            if _version(content) < newest[stem]:
                why = f"analysis/{stem}.json: another run's is of a later version; {MEASURE_AGAIN}"
                row["unread"] = "; ".join(str(of) for of in (row.get("unread"), why) if of)
                continue
            if _RANK_FILE.fullmatch(stem):
                row |= ranks_of(_mapping(content.get("spectrum")))
            row |= fields_of(content, f"{stem}.")


def _version(content: Mapping[str, Any]) -> int:
    version = content.get("schema_version")
    return version if isinstance(version, int) else 0


def _under_way(folder: RunFolder) -> Row:
    """What is known about an unfinished run. Raises: UserError when it is damaged."""
    rows = MetricsFile(folder.metrics).tail()
    latest = merged(rows)
    known = folder.read_identity()
    return {
        "experiment": folder.path.name.rpartition("-")[0],
        **_names(known.names, folder.read_config()),
        "epochs": epochs_done(rows),
        "valid_ppl": latest.get("valid/ppl"),
        "cost.seconds_per_epoch": latest.get("seconds_per_epoch"),
        **_of_settings(known.settings),
    }


def _start(folder: RunFolder, experiment: str) -> str | None:
    """The experiment of the run from which one was finetuned."""
    is_finetuned = "finetuned_from" in folder.read_identity().settings
    return experiment.removesuffix(FINETUNE) if is_finetuned else None


def _stopping(config: Mapping[str, Any]) -> Row:
    return {"stopping._target_": _mapping(config.get("stopping")).get("_target_", PATIENCE)}


def _of_settings(settings: Mapping[str, Any]) -> Row:
    row = flat(settings)
    if "data" in settings:  # options of a user's corpus of which its fingerprint says nothing
        row["data_sha256"] = sha256_of_values([settings["data_sha256"], settings["data"]])
    return row


def _names(names: RunNames, config: Mapping[str, Any]) -> Row:
    data = _mapping(config.get("data"))
    text, of = data.get("text"), str(data.get("folder") or "").rstrip("/").rpartition("/")[2]
    return {**names._asdict(), "trunk_of": of if isinstance(text, Mapping) else None}


def ranks_of(spectrum: Mapping[str, Any]) -> Row:
    """The columns of a stored spectrum's measures: `rank.press@10000`, `rank.effective_0.001@…`."""
    contexts = spectrum.get("num_contexts")
    found = {f"rank.{short}@{contexts}": spectrum.get(key) for key, short in _RANKS.items()}
    effective = _mapping(spectrum.get("effective_rank"))
    found |= {f"rank.effective_{epsilon}@{contexts}": rank for epsilon, rank in effective.items()}
    return {column: value for column, value in found.items() if value is not None}


def add_defaults(rows: Iterable[Row]) -> None:
    """An option that only some runs state is at its default in the others: a later lmkit may have
    added it, or have taken it out of the configuration.
    """
    stated = {column for row in rows for column in row}
    for row in rows:
        classes = {c: t for c, t in row.items() if c.endswith("._target_") and isinstance(t, str)}
        for column, target in classes.items():
            section = column.removesuffix("._target_")
            if section.partition(".")[0] in SECTIONS:
                named = flat(option_defaults(target), f"{section}.")
                row |= {name: v for name, v in named.items() if name in stated - row.keys()}


def with_options(table: pd.DataFrame, options: Iterable[str]) -> pd.DataFrame:
    """The table with those of the options that only other runs state, at the defaults of its runs'
    own classes. An option that no class here has is left out.
    """
    targets = table.filter(regex=r"\._target_$")
    rows: list[Row] = [{str(c): t for c, t in row.items()} for row in targets.to_dict("records")]
    lacking = [option for option in options if option not in table]
    add_defaults([*rows, dict.fromkeys(lacking)])
    added = {o: [row.get(o) for row in rows] for o in lacking if any(o in row for row in rows)}
    return table.assign(**{option: _column(values).array for option, values in added.items()})


def fields_of(content: Mapping[str, Any], prefix: str = "") -> Row:
    """The values that an analysis stored, by their dotted names; without lists."""
    fields = {key: value for key, value in content.items() if key not in _ABOUT_A_FILE}
    return {k: v for k, v in leaves(fields, prefix) if not isinstance(v, list | Mapping)}


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Marks runs as failed that diverged, or whose test perplexity is more than twice the median of
    the table's runs on the same data with the same kind of trunk and a decoder of the same rank.
    """
    finished = table["state"].isin(["finished", "failed"])
    if not finished.any():
        return table
    table.loc[finished, "state"], table.loc[finished, "reason"] = "finished", None
    known = table.loc[finished].replace([np.inf, -np.inf], np.nan)
    missing = known[list(PERPLEXITIES)].isna().any(axis=1)
    alike = [c for c in ("data_sha256", "trunk", "head.decoder_rank") if c in known]
    usual = known.groupby(alike, dropna=False)["test_ppl"].transform("median")
    far = known["test_ppl"] > _FAILED * usual
    for rows, reason in (
        (missing, "it diverged: a loss or a perplexity is not finite"),
        (far, "its test perplexity is more than twice the median of its peers"),
    ):
        of_these = finished.to_numpy(copy=True)  # by position: copies of a run have its name
        of_these[of_these] = rows
        table.loc[of_these, "state"], table.loc[of_these, "reason"] = "failed", reason
    return table


def _column(values: list[object]) -> pd.Series[Any]:
    """Whole numbers stay whole where some are missing."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(abs(value) < 2**63 for value in values if isinstance(value, int)):
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if None in values else "bool")
    return pd.Series(values, dtype="float64" if kinds and kinds <= {int, float} else "object")


def flat(options: Mapping[str, Any], prefix: str = "") -> Row:
    """Every value in nested options, by its dotted name; lists as JSON."""
    found = leaves(options, prefix)
    return {k: json.dumps(v) if isinstance(v, list) else v for k, v in found if v != {}}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

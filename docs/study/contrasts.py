"""The primary contrasts of rules.md: over seeds, and over the text that they are measured on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rules import rules
from texts import SETTINGS, at_best_rate, interval, markdown, read

from lmkit.experiment.load import load_run
from lmkit.presentation.styled import p_text
from lmkit.presentation.tables import DASH
from lmkit.results.bootstrap import over_texts
from lmkit.results.stats import difference, holm
from lmkit.runs.analysis_files import read_arrays, write_arrays
from lmkit.runs.folder import RunFolder

LOSSES = "test_nll"
TITLES = dict(SETTINGS.values()) | {"penn_subwords_at30": "trained whole, averaged from epoch 30"}


def contrasts(runs: pd.DataFrame, rule: dict[str, Any]) -> pd.DataFrame:
    """A row a contrast and trunk: difference of test perplexity over fresh seeds with Welch's 95 %
    interval, Holm's p over all planned; where losses are kept, difference and interval over texts
    in per cent.
    """
    rows = []
    for sweep, pairs in rule["primary"].items():
        best = at_best_rate(runs.query(rule["sweeps"][sweep]["runs"]))
        fresh = best[best["seed"].isin(rule["fresh"])]
        for trunk, on_it in fresh.groupby("trunk_name"):
            heads = dict(iter(on_it.groupby("label")))
            for pair in (pair for pair in pairs if heads.keys() >= set(pair)):
                a, b = (heads[head] for head in pair)
                found = difference(a["test_ppl"], b["test_ppl"])._asdict()
                row = {"sweep": sweep, "trunk": trunk, "contrast": " − ".join(pair)}
                seeds = " and ".join(map(str, dict.fromkeys((len(a), len(b)))))
                rows.append(row | {"seeds": seeds} | found | _over_texts(a, b))
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    planned = sum(len(pairs) * _models(rule["sweeps"][s]) for s, pairs in rule["primary"].items())
    p = table["p_welch"].reindex(range(max(planned, len(table)))).fillna(1.0)
    p_holm = holm(p)[table.index].where(table["p_welch"].notna())
    return table.assign(p_holm=p_holm)  # over those not trained yet too


def _models(sweep: dict[str, Any]) -> int:
    """On how many trunks a sweep is planned; 1 of whole models."""
    return len(sweep.get("trunks", [None])) * sweep.get("of_each_kind", 1)


def contrasts_table(table: pd.DataFrame) -> str:
    """In Markdown, a row a contrast."""
    rows = []
    for _, row in table.iterrows():
        text = [row.get(f"text_{name}", np.nan) for name in ("difference", "low", "high")]
        of_text = DASH if np.isnan(text[0]) else interval(*text, 3)
        of_seeds = interval(*row[["difference", "low", "high"]], 2)
        cells = [row["contrast"], row["seeds"], of_seeds, p_text(row["p_holm"]), of_text]
        rows.append([TITLES.get(row["trunk"], f"on {row['trunk']}"), *cells])
    names = ["model", "contrast", "seeds", "test perplexity", "p, Holm", "over texts, %"]
    return markdown(names, rows)


def measure_losses(folder: Path) -> None:
    """Keeps the loss of each test token of the runs in `folder` whose checkpoint is there."""
    rule, runs = rules(), read(folder)
    wanted = pd.concat([runs.query(rule["sweeps"][sweep]["runs"]) for sweep in rule["primary"]])
    for path in wanted.loc[wanted["seed"].isin(rule["fresh"]), "folder"]:
        run = RunFolder(Path(path))
        if run.best.exists() and not read_arrays(run, LOSSES):
            loaded = load_run(run.path, "best", None, None)
            text = loaded.data.eval_batches("test")
            batches = loaded.with_bar(text, text.num_targets, "losses")
            losses = [nll_TB.flatten().cpu() for nll_TB in loaded.model.token_nlls(batches)]
            write_arrays(run, LOSSES, {"nll_N": torch.cat(losses).numpy().astype(np.float16)})


def _over_texts(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, float]:
    """The interval over texts; nothing where a run's losses are not kept."""
    kept = [[read_arrays(RunFolder(Path(path)), LOSSES).get("nll_N") for path in runs["folder"]]
            for runs in (a, b)]  # fmt: skip
    if any(nll is None for losses in kept for nll in losses):
        return {}
    found = over_texts(*(np.array(losses, np.float64) for losses in kept))._asdict()
    return {f"text_{name}": 100 * value for name, value in found.items()}

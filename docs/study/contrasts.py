"""The primary contrasts of rules.md: over seeds, and over the text that they are measured on."""

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rules import rules
from texts import (
    AT_30,
    SETTINGS,
    WIKITEXT2,
    at_best_rate,
    in_percent,
    interval,
    kind_of,
    markdown,
    read,
)

from lmkit.experiment.load import load_run
from lmkit.measures.contexts import with_bar
from lmkit.presentation.styled import p_text
from lmkit.presentation.tables import DASH
from lmkit.results.bootstrap import over_texts
from lmkit.results.stats import difference, holm, paired
from lmkit.runs.array_files import read_arrays, write_arrays
from lmkit.runs.folder import RunFolder

LOSSES = "test_nll.npz"
TITLES = dict(SETTINGS.values()) | {
    AT_30: "trained whole, averaged from epoch 30",
    WIKITEXT2: "trained whole, on WikiText-2",
    "penn_subwords": "on AWD-LSTMs trained with Softmax",
    "penn_subwords_softmaxes": "on AWD-LSTMs trained with MoS",
    "penn_subwords_transformer": "on Transformers",
}


def contrasts(runs: pd.DataFrame, rule: dict[str, Any]) -> pd.DataFrame:
    """A row a contrast, on a trunk over fresh seeds, and on a kind of trunks over its trunks.

    Each has the difference of test perplexity with its 95 % interval (Welch's over seeds, Student's
    paired over trunks), and Holm's p over all planned; where losses are kept, the difference and
    interval over texts in per cent.
    """
    rows = []
    for sweep, pairs in rule["primary"].items():
        of = rule["sweeps"][sweep]
        best = at_best_rate(runs.query(of["runs"]))
        fresh = best[best["seed"].isin(rule["fresh"])]
        for name, sample, heads in _samples(fresh, of):
            for a, b in (pair for pair in pairs if heads.keys() >= set(pair)):
                found = sample(heads[a], heads[b])
                if found is not None:
                    row = {"sweep": sweep, "trunk": name, "contrast": f"{a} − {b}"}
                    rows.append(row | found)
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    planned = sum(len(pairs) * _models(rule["sweeps"][s]) for s, pairs in rule["primary"].items())
    p = table["p"].reindex(range(max(planned, len(table)))).fillna(1.0)
    p_holm = holm(p)[table.index].where(table["p"].notna())
    return table.assign(p_holm=p_holm)  # over those not trained yet too


def over_trunks(runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Secondary contrasts over trunks, of heads until valid stops: by the trunks' kind as templates
    call it, the difference of test perplexity in per cent with Student's paired 95 % interval.
    """
    rule = rules()
    best = at_best_rate(runs.query(rule["sweeps"]["fixed_to_end"]["runs"]))
    fresh = best[best["seed"].isin(rule["fresh"])]
    found: dict[str, dict[str, str]] = {}
    for name, (trunk, _) in SETTINGS.items():
        alike = fresh[fresh["trunk_name"].map(kind_of) == kind_of(trunk)]
        test = alike.pivot_table("test_ppl", "trunk_name", "label")
        for a, b in permutations(test, 2):
            row = paired(*((100 * test[head] / test[b]).dropna().to_dict() for head in (a, b)))
            if row:
                percent = in_percent(a, b, row.difference, row.low, row.high)
                found.setdefault(name, {}).update(percent)
    return found


def _samples(
    fresh: pd.DataFrame, of: dict[str, Any]
) -> Iterator[tuple[str, Callable[..., dict[str, Any] | None], dict[str, pd.DataFrame]]]:
    """By name: what compares two heads, and runs by head."""
    trunks = of.get("trunks", list(fresh["trunk_name"].unique()))
    for trunk in trunks:
        heads = fresh[fresh["trunk_name"] == trunk].groupby("label")
        yield trunk, _over_seeds, dict(iter(heads))
    for trunk in trunks if "further" in of else []:
        alike = fresh[fresh["trunk_name"].map(kind_of) == kind_of(trunk)]
        yield kind_of(trunk), _over_trunks, dict(iter(alike.groupby("label")))


def _over_seeds(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Any]:
    found = difference(a["test_ppl"], b["test_ppl"])._asdict()
    count = " and ".join(map(str, dict.fromkeys((len(a), len(b)))))
    return {
        "sample": "1 seed" if count == "1" else f"{count} seeds",
        "p": found.pop("p_welch"),
        **found,
        **_over_texts(a, b),
    }


def _over_trunks(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Any] | None:
    found = paired(*(runs.groupby("trunk_name")["test_ppl"].mean().to_dict() for runs in (a, b)))
    return found and {**found._asdict(), "sample": f"{found.seeds} trunks"}


def _models(sweep: dict[str, Any]) -> int:
    """Of how many samples contrasts are planned: seeds on each trunk, and trunks of each kind."""
    return len(sweep.get("trunks", [None])) * (2 if "further" in sweep else 1)


def contrasts_table(table: pd.DataFrame) -> str:
    """In Markdown, a row a contrast."""
    rows = []
    for _, row in table.iterrows():
        text = [row.get(f"text_{name}", np.nan) for name in ("difference", "low", "high")]
        of_text = DASH if np.isnan(text[0]) else interval(*text, 3)
        mean = interval(*row[["difference", "low", "high"]], 2)
        cells = [row["contrast"], row["sample"], mean, p_text(row["p_holm"]), of_text]
        rows.append([TITLES[row["trunk"]], *cells])
    names = ["model", "contrast", "over", "test perplexity", "p, Holm", "over texts, %"]
    return markdown(names, rows)


def measure_losses(folder: Path) -> None:
    """Keeps the loss of each test token of the runs in `folder` whose checkpoint is there."""
    rule, runs = rules(), read(folder)
    for path in pd.concat([_contrasted(runs, sweep, rule) for sweep in rule["primary"]])["folder"]:
        run = RunFolder(Path(path))
        if run.best.exists() and not (run.analysis / LOSSES).exists():
            loaded = load_run(run.path, "best", None, None)
            text = loaded.data.eval_batches("test")
            batches = with_bar(run.path.name, text, text.num_targets, "losses")
            losses = [nll_TB.flatten().cpu() for nll_TB in loaded.model.token_nlls(batches)]
            kept = {"nll_N": torch.cat(losses).numpy().astype(np.float16)}
            write_arrays(run.analysis / LOSSES, kept)


def _contrasted(runs: pd.DataFrame, sweep: str, rule: dict[str, Any]) -> pd.DataFrame:
    """The runs that primary contrasts over seeds compare, at any rate."""
    of, heads = rule["sweeps"][sweep], {head for pair in rule["primary"][sweep] for head in pair}
    found = runs.query(of["runs"])
    found = found[found["label"].isin(heads) & found["seed"].isin(rule["fresh"])]
    return found[found["trunk_of"].isin(of["trunks"])] if "trunks" in of else found


def _over_texts(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, float]:
    """The interval over texts; nothing where a run's losses are not kept."""
    try:
        kept = [[read_arrays(RunFolder(Path(path)).analysis / LOSSES)["nll_N"]
                 for path in runs["folder"]] for runs in (a, b)]  # fmt: skip
    except FileNotFoundError:
        return {}
    found = over_texts(*(np.array(losses, np.float64) for losses in kept))._asdict()
    return {f"text_{name}": 100 * value for name, value in found.items()}

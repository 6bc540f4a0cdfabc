"""What the study's texts say of its kept runs, all from the frame of runs.

A head stands at the rate that is best on valid with the choosing seed, with all other seeds at that
rate. A template names a value as `{minus[whole][MoC − Softmax]}`.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lmkit.presentation.styled import signed
from lmkit.presentation.tables import decimal
from lmkit.results.frame import results
from lmkit.results.published import published
from lmkit.results.stats import correlation, difference, holm
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

FIRST_SEED = 141
PRESS, EFFECTIVE = "rank.press@10000", "rank.effective_0.001@10000"
RATES = ("rate", "module.transform_lr")
WHOLE, AT_30 = "penn_subwords_nt", "penn_subwords_at30"
WIKITEXT2 = "wikitext2_subwords_at12"
SETTINGS = {  # name in templates: trunk, and name in tables
    "softmax": ("penn_subwords-b511f1da1004", "on the Softmax trunk"),
    "mos": ("penn_subwords_softmaxes-ce85e3b663c7", "on the MoS trunk"),
    "transformer": ("penn_subwords_transformer-4ee3176126df", "on the Transformer"),
    "whole": (WHOLE, "trained whole"),
}
HEADS = (  # first those whose rank is bounded as Softmax's
    *("Softmax", "MoC", "MoS (K=1)"),
    *("SS", "GSS (c=−1.5)", "GSS (c=1.5)", "LMS-PLIF", "MoS (K=5)", "MoS + GSS", "Mixtape"),
)
BOUND = 34  # rank of log P of a softmax: contexts have 32 numbers
_CHOSEN = "valid by rate, seed 141"  # a column, as the following
_OF_HEAD = ["seeds", "valid", "test", "minus Softmax", "rank", "KL from a softmax"]  # columns
_OPTIONS = {  # that tell variants of a head apart
    "GSS": ("c=", "head.transform.c"),
    "MoS": ("K=", "head.mixture.num_experts"),
    "tanh layer": ("", "head.mixture.width"),
    "soft cap": ("", "head.transform.cap"),
}


def read(runs: Path | str) -> pd.DataFrame:
    """Finished runs, with `trunk_name`, `rms` of their contexts, `label` of the head and `rate`."""
    table = results(str(runs)).query("state in ('finished', 'failed')")
    whole = table["experiment"].str.extract(r"^(\w+_subwords_(?:nt|at\d+))", expand=False)
    trunk = table["trunk_of"].fillna(whole) if "trunk_of" in table else whole
    labels = [_label(row) for _, row in table.iterrows()]
    rms = table.get("trunk.rms", np.nan)
    rate = table["optimizer.lr"].astype(float)
    return table.assign(trunk_name=trunk, rms=rms, label=labels, rate=rate)


def at_best_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """Of each head, trained alike on the same contexts, the runs at the rate of lowest valid
    perplexity with the choosing seed, among the rates with the most of the other seeds: a new best
    rate does not count before it has its seeds. The first trunk of a kind chooses for all of them.
    Of a seed that a CPU and a GPU trained alike, the GPU's run.
    """
    kind = runs["trunk_name"].map(kind_of)
    alike = ["rms", "max_epochs", "label"]
    of = runs.groupby([kind, *alike], dropna=False).ngroup()
    others = runs["seed"].where(runs["seed"] != FIRST_SEED)
    at_rate = [of, *(runs[rate] for rate in RATES)]
    num_seeds = others.groupby(at_rate, dropna=False).transform("nunique")
    first = runs.assign(of=of, lacks=num_seeds.groupby(of).transform("max") - num_seeds)
    first = first[runs["seed"] == FIRST_SEED].sort_values(["lacks", "valid_ppl"]).groupby("of")
    is_best = [runs[rate] == of.map(first[rate].first()) for rate in RATES]
    best = runs[is_best[0] & is_best[1]]
    on_gpu = best["device_kind"] == "cuda"
    seeds = best.groupby(["trunk_name", *alike, "seed"], dropna=False).ngroup()
    return best[on_gpu | ~seeds.isin(seeds[on_gpu])]


def kind_of(trunk: str) -> str:
    """What trunks of other seeds share: the name of a run without its digest."""
    return trunk.partition("-")[0]


def fresh(runs: pd.DataFrame) -> pd.DataFrame:
    """Without the seed that chose the rates."""
    return runs[runs["seed"] != FIRST_SEED]


def in_the_table(kept: pd.DataFrame) -> pd.DataFrame:
    """The runs of ten heads in four settings: five epochs on contexts as they are, or whole."""
    trunks = [trunk for trunk, _ in SETTINGS.values()]
    of_heads = kept["label"].isin(HEADS) & kept["head.decoder_rank"].isna() & kept["rms"].isna()
    long_enough = kept["max_epochs"] == kept["trunk_of"].isna().map({True: 60, False: 5})
    return kept[of_heads & long_enough & kept["trunk_name"].isin(trunks)]


def told(kept: pd.DataFrame) -> dict[str, Any]:
    """What the templates name."""
    table = in_the_table(kept)
    known: dict[str, Any] = {"kept": len(kept), "dirty": int(kept["code.dirty"].sum())}
    for name, (trunk, _) in SETTINGS.items():
        runs = table[table["trunk_name"] == trunk]
        for key, value in _of_setting(fresh(at_best_rate(runs))).items():
            known.setdefault(key, {})[name] = value
    low, press, effective = (
        [known[what][name][head] for name in SETTINGS for head in ("SS", "GSS (c=−1.5)")]
        for what in ("lowest", "press", "effective")
    )
    softmax = sorted(int(known["effective"][name]["Softmax"]) for name in SETTINGS)
    whole = table[table["trunk_name"] == WHOLE]
    limited = kept[kept["head.decoder_rank"].notna()]
    ended = kept[kept["trunk_of"].notna() & (kept["rms"] > 0) & (kept["max_epochs"] == 60)]
    to_end = ended[ended["trunk_of"] == SETTINGS["softmax"][0]]
    known |= {
        "least_rank": min(press, key=lambda rank: int(rank.replace(",", ""))),
        "effective_ranks": f"{min(map(int, effective))} to {max(map(int, effective))}",
        "softmax_effective_ranks": f"{softmax[0]} to {softmax[-1]}",
        "largest_gain": f"{np.ceil(-10 * min(low)) / 10:.1f}",  # no interval reaches further
        "test_of": {name: f"{ppl:.2f}" for name, ppl in kept["test_ppl"].items()},
        "valid_of": {name: f"{ppl:.2f}" for name, ppl in kept["valid_ppl"].items()},
        "settings": settings_table(known),
        "published": _published(),
        "rank_by_rate": _by_rate(to_end, PRESS),
        "wikitext2": _averaged(kept[kept["trunk_name"] == WIKITEXT2]),
        "by_slopes": _by_slopes(to_end),
        "at_limit": int((ended["epochs"] == ended["max_epochs"]).sum()),
        "limited": _limited(limited[limited["trunk_of"] == SETTINGS["softmax"][0]]),
        "fixed_cpus": _cpus(table[table["trunk_of"].notna()]),
        "whole_cpus": _cpus(whole),
    }
    return known | _on_fixed_trunks(kept) | _of_whole(whole) | _averaged_at_30(kept)


def settings_table(known: dict[str, Any]) -> str:
    """In Markdown, a row a head: in each setting test perplexity, valid perplexity and ranks."""
    rows = []
    for head in HEADS:
        cells = [head]
        for name in SETTINGS:
            keys = ("test", "valid", "press", "effective")
            test, valid, press, effective = (known[key][name].get(head) for key in keys)
            text = f"{test}<br>valid {valid}<br>rank {press} ({effective})"
            cells.append(text if test else "not trained")
        rows.append(cells)
    return markdown(["head", *(title for _, title in SETTINGS.values())], rows)


def _on_fixed_trunks(kept: pd.DataFrame) -> dict[str, Any]:
    """Of heads that were trained until valid perplexity stopped, a table in Markdown, `to_end`, and
    by trunk what tells the heads apart, `end`, their test perplexities, `end_test`, and Press
    ranks, `end_rank`, how far log P is from the nearest softmax, `end_distance`, on other contexts
    with its decoder, `end_held_out`, and by how many per cent its perplexity is higher,
    `end_price`; of five epochs on contexts of one root mean square, test perplexity by trunk and
    head, `scaled`.
    """
    names = {trunk: name for name, (trunk, _) in SETTINGS.items()}
    runs = scaled_contexts(kept, max_epochs=60)
    ended = fresh(at_best_rate(runs))
    end = {names[trunk]: _of_pairs(on_it)[0] for trunk, on_it in ended.groupby("trunk_name")}
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (trunk, head), of in ended.groupby(["trunk_name", "label"]):
        means = {"end_test": f"{of['test_ppl'].mean():.2f}", "end_rank": f"{of[PRESS].mean():.0f}"}
        for key, value in (means | _nearest_texts(of, "end_")).items():
            found.setdefault(key, {}).setdefault(names[trunk], {})[head] = value
    scaled: dict[str, dict[str, str]] = {}
    for _, run in at_best_rate(scaled_contexts(kept, max_epochs=5)).iterrows():
        scaled.setdefault(names[run["trunk_name"]], {})[run["label"]] = f"{run['test_ppl']:.2f}"
    table = _to_end_table(ended, runs)
    return {"to_end": table, "end": end, "scaled": scaled} | found | _softmax_by_rms(kept)


def _softmax_by_rms(kept: pd.DataFrame) -> dict[str, dict[str, str]]:
    """By trunk Softmax's valid perplexity with seed 141 at its best rate, trained until it stopped,
    on contexts `as_they_are`, and `at_one_rms`.
    """
    runs = kept.query("label == 'Softmax' and max_epochs == 60 and seed == @FIRST_SEED")
    found: dict[str, dict[str, str]] = {"as_they_are": {}, "at_one_rms": {}}
    for name, (trunk, _) in SETTINGS.items():
        on_it = runs[runs["trunk_of"] == trunk]
        if on_it.empty:  # trained whole
            continue
        for key, of in (("as_they_are", on_it["rms"].isna()), ("at_one_rms", on_it["rms"] > 0)):
            found[key][name] = f"{on_it.loc[of, 'valid_ppl'].min():.3f}"
    return found


def scaled_contexts(kept: pd.DataFrame, max_epochs: int) -> pd.DataFrame:
    """Heads on contexts of one root mean square: 60 epochs at most are until valid perplexity
    stops.
    """
    on_them = kept["trunk_name"].isin(trunk for trunk, _ in SETTINGS.values()) & (kept["rms"] > 0)
    of_heads = on_them & kept["head.decoder_rank"].isna() & (kept["max_epochs"] == max_epochs)
    return kept[of_heads]


def _to_end_table(ended: pd.DataFrame, runs: pd.DataFrame) -> str:
    rows = []
    for trunk, title in SETTINGS.values():
        on_it, every = (of[of["trunk_name"] == trunk] for of in (ended, runs))
        by_rate = _by_rate(every, "valid_ppl")
        for head, of in on_it.groupby("label"):
            cells = [title, head, by_rate[head], f"{of['rate'].iloc[0]:g}"]
            rows.append([*cells, *_of_head(of, on_it)])
    return markdown(["contexts", "head", _CHOSEN, "rate", *_OF_HEAD], rows)


def _of_head(of: pd.DataFrame, beside: pd.DataFrame) -> list[str]:
    """Of a head's runs the cells of these columns; Softmax's runs are among those `beside` it."""
    softmax = beside.loc[beside["label"] == "Softmax", "test_ppl"]
    is_softmax = of["label"].iloc[0] == "Softmax"
    less = "" if is_softmax else interval(*difference(of["test_ppl"], softmax)[:3], 2)
    numbers = [f"{of[column].mean():.2f}" for column in ("valid_ppl", "test_ppl")]
    ranks = f"{of[PRESS].mean():,.0f} ({of[EFFECTIVE].mean():.0f})"
    nearest = _nearest_texts(of)
    held_out = f" ({nearest['held_out']})" if nearest["held_out"] not in ("", "0") else ""
    return [f"{len(of)}", *numbers, less, ranks, nearest["distance"] + held_out]


def _averaged_at_30(kept: pd.DataFrame) -> dict[str, Any]:
    """Of heads that were trained whole and averaged from epoch 30 on, beside what `_averaged` says,
    with `at_30_` before its names: how far log P is from the nearest softmax, `at_30_distance`, and
    by how many per cent its perplexity is higher, `at_30_price`; Holm's p of the differences,
    `at_30_holm`, and those with the tanh layer at 5, which a GPU trained, `at_30_at_5`; how many
    words are `never` the likeliest: of `all`, of those `unused` in the training text, and at most
    of those `occurring` in it. Of seeds that a CPU and a GPU trained, how many per cent the CPU's
    perplexities are higher, `at_30_higher`, and how many the two differ on valid after one epoch,
    `at_30_apart`.
    """
    runs = kept[kept["trunk_name"] == AT_30]
    ended = fresh(at_best_rate(runs))
    begun = fresh(runs)["folder"].map(lambda folder: _valid_ppl(folder)[0])
    on_both = (
        fresh(runs)
        .assign(begun=begun)
        .pivot_table(["test_ppl", "begun"], ["label", "rate", "seed"], "device_kind")
    )
    higher, apart = (
        100 * (on_both[column, "cpu"] / on_both[column, "cuda"] - 1).dropna()
        for column in ("test_ppl", "begun")
    )
    is_layer = runs["label"] == "tanh layer (83)"
    at_5 = runs[is_layer & (runs["rate"] == 5) & (runs["device_kind"] == "cuda")]
    with_5 = pd.concat([ended[~is_layer[ended.index]], fresh(at_5)])
    heads = dict(iter(ended.groupby("label")))
    p = _of_pairs(ended)[1]
    never = pd.DataFrame(_analyses(ended, "unargmaxable"))
    unused = never["unargmaxable"] - never["occurring"]
    return {f"at_30_{name}": value for name, value in _averaged(runs).items()} | {
        "at_30_holm": {pair: f"{value:.2f}" for pair, value in holm(pd.Series(p)).items()},
        "at_30_higher": f"{higher.min():.1f} to {higher.max():.1f} (mean {higher.mean():.1f})",
        "at_30_apart": f"{apart.abs().min():.1f} to {apart.abs().max():.1f}",
        "at_30_at_5": _of_pairs(with_5)[0]["percent"],
        "at_30_distance": {h: _nearest_texts(of)["distance"] for h, of in heads.items()},
        "at_30_price": {h: _nearest_texts(of)["price"] for h, of in heads.items()},
        "never": {
            "all": f"{never['unargmaxable'].min()} to {never['unargmaxable'].max()}",
            "unused": f"{unused.min()} to {unused.max()}",
            "occurring": f"{never['occurring'].max()}",
        },
    }


def _averaged(runs: pd.DataFrame) -> dict[str, Any]:
    """Of heads that were trained whole and averaged from one epoch on: in Markdown a row a head,
    `table`. Of fresh seeds the differences in `percent`, the layer's from halfway between Softmax
    and MoS, `midway`, Press's `rank`, how many were best after their `last` epoch, how far valid
    perplexity `fell` in the last five, and from what to what the layer's less MoS's went, `gap`; by
    how much the choosing seed's `chose` the rate.
    """
    ended = fresh(at_best_rate(runs))
    by_head = ended.groupby("label")
    curves = pd.DataFrame({name: _valid_ppl(f)[-6:] for name, f in ended["folder"].items()}).T
    means = curves.groupby(ended["label"]).mean()  # a column an epoch
    shown = runs["label"].isin(means.index) & (runs["seed"] == FIRST_SEED)
    first = runs[shown].groupby("label")["valid_ppl"]
    less = (means.loc["tanh layer (83)"] - means.loc["MoS (K=5)"]).tolist()
    return {
        "table": _whole_table(runs),
        "percent": _of_pairs(ended)[0]["percent"],
        "midway": _from_midway(ended),
        "rank": {head: f"{rank:.0f}" for head, rank in by_head[PRESS].mean().items()},
        "last": f"{(ended['best_epoch'] == ended['epochs']).sum()} of {len(ended)}",
        "fell": {head: f"{of[0] - of[5]:.2f}" for head, of in means.iterrows()},
        "chose": {head: f"{np.diff(ppl.nsmallest(2))[0]:.2f}" for head, ppl in first},
        "gap": f"{decimal(less[0], 2)} to {decimal(less[-1], 2)}",
    }


def _from_midway(runs: pd.DataFrame) -> str:
    """The tanh layer's test perplexity less the mean of Softmax's and MoS's, in per cent of it."""
    of_seed = runs.pivot_table("test_ppl", "seed", "label")
    midway = of_seed[["Softmax", "MoS (K=5)"]].mean(axis=1)
    less = difference(of_seed["tanh layer (83)"], midway)[:3]
    return interval(*(100 * np.array(less) / midway.mean()), 1)


def _whole_table(runs: pd.DataFrame) -> str:
    """In Markdown, a row a head of those that were trained whole."""
    ended, by_rate = fresh(at_best_rate(runs)), _by_rate(runs, "valid_ppl")
    heads = ended.groupby("label")
    rows = [[str(head), by_rate[str(head)], *_of_head(of, ended)] for head, of in heads]
    return markdown(["head", _CHOSEN, *_OF_HEAD], rows)


def _valid_ppl(folder: str) -> list[float]:
    """After each epoch."""
    rows = MetricsFile(RunFolder(Path(folder)).metrics).read()
    return [row["valid/ppl"] for row in rows if "valid/ppl" in row]


class FromSoftmax(NamedTuple):
    """What `lmkit nearest_softmax` measured: means over the runs of which it did; NaN of none."""

    distance: float  # KL divergence of the nearest softmax from log P, nats
    held_out: float  # of the nearest with its decoder, on contexts that this has not seen, nats
    price: float  # by how many per cent its perplexity is above the head's own


def from_softmax(runs: pd.DataFrame) -> FromSoftmax:
    """Of a head; 0 where its rank is bounded as Softmax's."""
    if runs[PRESS].max() <= BOUND:
        return FromSoftmax(0.0, 0.0, 0.0)
    found = _analyses(runs, f"nearest_softmax_test_10000_{BOUND - 2}")
    measured = [
        (
            of["divergence"],
            of.get("held_out_divergence"),
            100 * (of["nearest_perplexity"] / of["perplexity"] - 1),
        )
        for of in found
    ]
    return FromSoftmax(*pd.DataFrame(measured or [[np.nan] * 3]).astype(float).mean())


def _nearest_texts(runs: pd.DataFrame, prefix: str = "") -> dict[str, str]:
    found = from_softmax(runs)
    texts = (
        *(f"{nats:.4f}" if nats else "0" for nats in (found.distance, found.held_out)),
        decimal(found.price, 1),
    )
    named = zip(found._asdict().items(), texts, strict=True)
    return {prefix + key: "" if np.isnan(value) else text for (key, value), text in named}


def _analyses(runs: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """What an analysis of that name measured, of the runs that have it."""
    files = (Path(folder) / f"analysis/{name}.json" for folder in runs["folder"])
    return [parse_json(file.read_bytes()) for file in files if file.exists()]


def _by_rate(runs: pd.DataFrame, column: str) -> dict[str, str]:
    """By head, a column at each rate with the choosing seed, LMS-PLIF at its slopes' best rate."""
    first = runs[runs["seed"] == FIRST_SEED].sort_values("valid_ppl")
    of_slopes = first[RATES[1]].fillna(0)
    best = of_slopes.groupby(first["label"]).transform("first")
    first = first[of_slopes == best].sort_values("rate")
    places = 0 if column == PRESS else 2
    return {
        str(head): ", ".join(
            f"{value:.{places}f} at {rate:g}"
            for rate, value in zip(of["rate"], of[column], strict=True)
        )
        for head, of in first.groupby("label")
    }


def _by_slopes(runs: pd.DataFrame) -> str:
    """Of LMS-PLIF, valid perplexity with the choosing seed by rate of slopes, at the best rate."""
    first = runs[(runs["seed"] == FIRST_SEED) & (runs["label"] == "LMS-PLIF")]
    best = first.groupby(RATES[1])["valid_ppl"].min()
    return ", ".join(f"{ppl:.2f} at {rate:g}" for rate, ppl in best.items())


def _published() -> dict[str, str]:
    """Of each row of the published table, perplexity and rank."""
    table = published().query("paper == 'Parthiban et al. 2021' and table == 'table 2'")
    penn = table[table["experiment"].str.startswith("penn", na=False)]
    values = penn.pivot_table("value", "row", "quantity")
    return {
        row: f"{of['test_ppl']:.2f} at {of['rank.press@82429']:,.0f}"
        for row, of in values.iterrows()
    }


def interval(mean: float, low: float, high: float, places: int) -> str:
    """`−0.44 (−0.49 … −0.38)`; of one seed there is no interval."""
    text = decimal(mean, places)
    return text if np.isnan(low) else f"{text} ({decimal(low, places)} … {decimal(high, places)})"


def in_percent(a: str, b: str, mean: float, low: float, high: float) -> dict[str, str]:
    """In per cent of b's: `a − b`, and as it is, `a below b` or `a above b`."""
    places = 1 if abs(mean) > 0.1 else 2
    minus = interval(mean, low, high, places)
    if mean < 0:
        return {f"{a} − {b}": minus, f"{a} below {b}": interval(-mean, -high, -low, places)}
    return {f"{a} − {b}": minus, f"{a} above {b}": minus}


def _label(row: pd.Series[Any]) -> str:
    name, option = _OPTIONS.get(row["head"], ("", ""))
    value = row.get(option)
    if not option or pd.isna(value):
        return str(row["head"])
    return f"{row['head']} ({name}{value:g})".replace("-", "−")


def _of_setting(runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Of the heads on one trunk, by name: means, and differences of all pairs."""
    heads = {str(head): of for head, of in runs.groupby("label")}
    columns = ("test_ppl", "valid_ppl", PRESS, EFFECTIVE)
    test, valid, press, effective = (runs.groupby("label")[c].mean() for c in columns)
    found, p = _of_pairs(runs)
    less = {head: signed(ppl - valid["Softmax"]) for head, ppl in valid.items()}
    return found | {
        "test": {h: found["minus"].get(f"{h} − Softmax", f"{test[h]:.2f}") for h in heads},
        "valid": less | {"Softmax": f"{valid['Softmax']:.2f}"},
        "mean": {head: f"{ppl:.2f}" for head, ppl in test.items()},
        "press": {head: f"{rank:,.0f}" for head, rank in press.items()},
        "effective": {head: f"{rank:.0f}" for head, rank in effective.items()},
        "epochs": {h: f"{of['epochs'].min()} to {of['epochs'].max()}" for h, of in heads.items()},
        "holm": {pair: f"{value:.2f}" for pair, value in holm(pd.Series(p)).items()},
        "r": interval(*correlation(list(press[list(heads)]), list(test[list(heads)])), 2),
    }


def _of_pairs(runs: pd.DataFrame) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """By `MoC − Softmax`, the `minus` in perplexity, the same in `percent`, and by head the end of
    the interval less Softmax that is `lowest`, in per cent; by `MoC, Softmax`, Welch's p.
    """
    heads = {str(head): of["test_ppl"] for head, of in runs.groupby("label")}
    found: dict[str, dict[str, Any]] = {key: {} for key in ("minus", "percent", "lowest")}
    p = {}
    for a, b in permutations(heads, 2):
        of = difference(heads[a], heads[b])
        mean, low, high = of[:3]
        found["minus"][f"{a} − {b}"] = interval(mean, low, high, 2 if abs(mean) > 0.1 else 3)
        percent = 100 * np.array([mean, low, high]) / heads[b].mean()
        found["percent"] |= in_percent(a, b, *percent)
        if b == "Softmax":
            found["lowest"][a] = percent[1]
        if a < b:
            p[f"{a}, {b}"] = of.p_welch
    return found, p


def _of_whole(runs: pd.DataFrame) -> dict[str, Any]:
    """Which rate MoC has, when averaging begins, how straight the transforms are."""
    best = at_best_rate(runs)
    lucky, *others = sorted(best.loc[best["label"] == "MoC", "valid_ppl"])
    at_ten = runs[(runs["rate"] == 10) & (runs["seed"] == FIRST_SEED)].set_index("label")
    begins = fresh(best)["switched_after"].astype(int) + 1
    curves = {head: _slope_and_bend(of) for head, of in best.groupby("label")}
    return {
        "luckiest": f"{lucky:.2f}",
        "others": f"{others[0]:.2f} to {others[-1]:.2f}",
        "at_ten": {head: f"{ppl:.3f}" for head, ppl in at_ten["valid_ppl"].items()},
        "averaged_from": f"{begins.min()} to {begins.max()}",
        "slope": {head: of[0] for head, of in curves.items() if of},
        "bend": {head: of[1] for head, of in curves.items() if of},
    }


def _slope_and_bend(runs: pd.DataFrame) -> tuple[float, float] | None:
    """The best straight line of a transform over the logits that it meets, as `lmkit logits` of one
    of the runs measured them: its slope, and the root mean square of what it leaves, in nats.
    """
    content = next(iter(_analyses(runs, "logits")), None)
    if content is None:
        return None
    edges, density = (np.array(content["histogram"][name]) for name in ("edges", "density"))
    middle, weight = (edges[1:] + edges[:-1]) / 2, density * np.diff(edges)
    curve = np.interp(middle, content["curve"]["logit"], content["curve"]["transformed"])
    line = np.poly1d(np.polyfit(middle, curve, 1, w=np.sqrt(weight)))
    left = np.average((curve - line(middle)) ** 2, weights=weight)
    return float(line[1]), float(np.sqrt(left))


def _limited(runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Test perplexity and Press rank by head and rank of its decoder, `GSS 4`."""
    names = runs["head"] + " " + runs["head.decoder_rank"].astype(int).astype(str)
    return {
        "ppl": {n: f"{v:.2f}" for n, v in zip(names, runs["test_ppl"], strict=True)},
        "press": {n: f"{v:.0f}" for n, v in zip(names, runs[PRESS], strict=True)},
    }


def _cpus(runs: pd.DataFrame) -> str:
    """`31 runs on an Intel Xeon, 30 on an AMD EPYC`"""
    results = (RunFolder(Path(folder)).read_result() for folder in runs["folder"])
    names = pd.Series([result.provenance["hardware"]["cpu"] for result in results])
    counts = names.str.replace(r"\(R\)| Processor", "", regex=True).value_counts()
    return ", ".join(f"{n} on an {name}" for name, n in counts.items()).replace(
        " on", " runs on", 1
    )


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

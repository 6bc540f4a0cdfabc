"""What groups of runs and their settings are called: by what distinguishes them from others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

_SHORT = {
    "head.mixture.num_experts": "K",
    "head.mixture.emb_dim": "E",
    "head.emb_dim": "E",
    "head.mixture.latent_dropout": "latent dropout",
    "head.num_experts": "K",
    "head.num_partitions": "J",
    "optimizer.lr": "rate",
    "module.transform_lr": "transform rate",
}
_TRUNK = "trunk._target_"
SOURCES = "sources."  # hashes, by the classes of a user
_MOST = 4  # differences in a label
_UNTOLD = {"root", "folder", "field", "weights_sha256", "_recursive_", "eval_length", "dtype"}
_UNTOLD |= {"title", "short_title"}  # the corpus or the trunk's name says as much


def labels(runs: pd.DataFrame, options: Iterable[str]) -> pd.Series[str]:
    """`GSS (c=−1.5, rate 5)`: the head, with those options in which runs of that head differ within
    a setting. Where they are many, all but the first get a number.
    """
    found = pd.Series("", index=runs.index)
    wanted = [option for option in options if option in runs]
    for rows in runs.groupby(["setting", "head"], sort=False).indices.values():
        found.iloc[rows] = pd.Index(_of_head(runs.iloc[rows], wanted))
    return found


def differing(runs: pd.DataFrame, options: Iterable[str]) -> list[str]:
    """The options whose value is not the same in all runs, those of the head first. An option that
    some runs lack, since their section is of another class, counts where the others differ in it.
    """
    varied = [o for o in options if runs[o].nunique(dropna=False) > 1]
    found = [o for o in varied if runs[o].nunique() > 1 or not _is_of_a_class(runs, o)]
    return sorted(found, key=lambda option: not option.startswith("head."))


def titles(runs: pd.DataFrame) -> pd.Series[str]:
    """`Penn Treebank, AWD-LSTM`, `Penn Treebank, BPE 1,000, frozen AWD-LSTM with MoS`; equal ones
    with what their data differ in, and their fingerprint where that leaves equal ones.
    """
    found = pd.Series({n: _title(runs, of) for n, of in runs.groupby("setting", sort=False)})
    for _, same in found.groupby(found):
        if len(same) > 1:
            among = runs[runs["setting"].isin(same.index)]
            told = {number: _data(among, number) for number in same.index}
            sha256 = among.groupby("setting")["data_sha256"].first()
            for number, words in told.items():
                is_shared = list(told.values()).count(words) > 1
                last = [f"data {str(sha256[number])[:8]}"] if is_shared else []
                found[number] = ", ".join([found[number], *words, *last])
    return runs["setting"].map(found)


def in_words(option: str, row: pd.Series[Any]) -> str:
    """`c=−1.5`, `rate 0.001`, `AdamW`: an option and its value, or the name of what it makes."""
    if option.startswith("trigger."):
        return str(row["trigger"])
    if option == _TRUNK:
        return str(row["trunk"])
    value = row[option]
    if option == "finetuned":
        return f"finetuned from {value}" if isinstance(value, str) else "not finetuned"
    if option == "by_callback":
        return "ended by a callback" if value else "not ended by a callback"
    if option.startswith(SOURCES):
        return f"source {str(value)[:8]}"
    if option.endswith("_target_"):  # of a section that a run may lack
        return f"no {option.split('.')[-2].replace('_', ' ')}" if pd.isna(value) else str(value)
    name = _SHORT.get(option, option.rpartition(".")[2].replace("_", " "))
    if isinstance(value, bool):
        return name if value else f"no {name}"
    text = value_text(value)
    return f"{name}={text}" if len(name) == 1 else f"{name} {text}"


def value_text(value: object) -> str:
    """A value as people write it."""
    if isinstance(value, str):
        return value
    if pd.isna(value):  # type: ignore[call-overload]
        return "none"
    text = f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
    return text.replace("-", "−")


def _of_head(peers: pd.DataFrame, options: list[str]) -> list[str]:
    options = differing(peers, options)
    shown = peers[[*options, *(c for c in ("head", "trunk", "trigger") if c not in options)]]
    for option in options:
        if option.endswith("_target_"):
            shown = shown.assign(**{option: class_names(shown[option])})
    texts = []
    for _, row in shown.iterrows():
        # a head without a part, such as a whole decoder, needs no word
        there = [o for o in options if not (o.startswith(("head.", SOURCES)) and pd.isna(row[o]))]
        texts.append(tuple(dict.fromkeys(in_words(option, row) for option in there)))
    numbers = {words: i + 1 for i, words in enumerate(dict.fromkeys(texts))}
    head = str(peers["head"].iloc[0])
    return [_label(head, words, numbers[words]) for words in texts]


def class_names(paths: pd.Series[str]) -> pd.Series[str]:
    """Without their packages, where the names of the classes tell them apart."""
    names = paths.map(lambda path: str(path).rpartition(".")[2], na_action="ignore")
    return names if names.nunique() == paths.nunique() else paths


def _is_of_a_class(runs: pd.DataFrame, option: str) -> bool:
    """Whether runs lack the option, and all runs of their section's class do."""
    target, lacks = f"{option.rpartition('.')[0]}._target_", runs[option].isna()
    if target not in runs or runs[target].nunique() < 2 or not lacks.any():
        return False
    return bool(lacks.groupby(runs[target], dropna=False).nunique().max() == 1)


def _label(head: str, words: tuple[str, ...], number: int) -> str:
    if len(words) > _MOST:
        words = (*words[: _MOST - 1], f"… #{number}")
    return f"{head} ({', '.join(words)})" if words else head


def _title(runs: pd.DataFrame, of: pd.DataFrame) -> str:
    first = of.iloc[0]
    trunk_of = first.get("trunk_of")
    if not isinstance(trunk_of, str):
        cut = first.get("data.train_tokens") if pd.notna(first.get("data.folder")) else None
        only = "" if pd.isna(cut) else f" (first {cut:,.0f} training tokens)"
        return f"{first['corpus']}{only}, {first['trunk']}"
    text = first.get("data.text.title")
    if trunk_of in runs.index:
        trained = runs.loc[[trunk_of]].iloc[0]  # copies of a run have one name
        return f"{trained['corpus']}, frozen {trained['trunk']} trained with {trained['head']}"
    subwords = first.get("data.text.vocab_size")
    in_subwords = "" if pd.isna(subwords) else f", BPE {subwords:,.0f}"
    return f"{text}{in_subwords}, frozen {trunk_of}"


def _data(among: pd.DataFrame, setting: object) -> list[str]:
    """The options of its data in which a setting differs from some of the others, in words."""
    options = [c for c in map(str, among.columns) if c.startswith("data.")]
    options = [c for c in options if c.rpartition(".")[2] not in _UNTOLD]
    own = among[among["setting"] == setting].iloc[0]
    return [
        f"{o.rpartition('.')[2].replace('_', ' ')} {value_text(own[o])}"
        for o in options
        if among.groupby("setting")[o].first().nunique(dropna=False) > 1
    ]

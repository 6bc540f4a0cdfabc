"""Which runs the study still lacks, by the rules in rules.md."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from texts import RATES, kind_of, read

from lmkit.runs.folder import RunFolder

RULES = Path(__file__).with_name("rules.md")
IN_NO_SWEEP = "learnt curve|mapped MoS"  # heads of classes beside this file


def rules() -> dict[str, Any]:
    """The block of rules.md that says how rates are chosen, and which sweeps there are."""
    block = re.search(r"```yaml\n(.*?)```", RULES.read_text("utf-8"), re.DOTALL)
    assert block is not None
    found: dict[str, Any] = yaml.safe_load(block[1])
    return found


def asked_for(folder: Path) -> list[str]:
    """The commands that the rules ask for next: of sweeps, of rates, of fresh seeds, of trunks.

    A head is searched further once it was tried at the two rates of its sweep.
    """
    rule, runs = rules(), read(folder)
    commands: list[list[str]] = [[], [], [], []]
    for sweep, of in rule["sweeps"].items():
        among = runs.query(of["runs"])
        primary = {head for pair in rule["primary"].get(sweep, []) for head in pair}
        for trunk in of.get("trunks", [None]):
            on_it = among if trunk is None else among[among["trunk_of"] == trunk]
            heads = [
                head
                for _, head in on_it.groupby(["label", "rms"], dropna=False)
                if head.loc[head["seed"] == rule["choosing"], "rate"].nunique() > 1
            ]
            own = [head for head in heads if re.search(IN_NO_SWEEP, head["label"].iloc[0])]
            if len(heads) - len(own) < of["heads"]:
                where = [] if trunk is None else [f"trunk.of={folder / trunk}"]
                words = ["lmkit", "train", f"multirun_sweeps={sweep}", *where, f"runs_dir={folder}"]
                commands[0].append(shlex.join(words))
            rates = [list(missing_rates(head, of["rates"], rule["choosing"])) for head in heads]
            commands[1] += [command for missing in rates for command in missing]
            tuned = [head for head, missing in zip(heads, rates, strict=True) if not missing]
            commands[2] += [command for head in tuned for command in missing_seeds(head, rule)]
            seeds = of.get("further", [])
            further = [name for name in runs.index if trunk and kind_of(name) == kind_of(trunk)]
            trunks = runs.loc[further].query("seed in @seeds")["folder"]
            commands[3] += [
                command
                for head in tuned
                if head["label"].iloc[0] in primary
                for command in missing_trunks(head, among, trunks, rule)
            ]
            if len(trunks) < len(seeds):
                commands[3].append(f"lmkit train multirun_sweeps=study_trunks runs_dir={folder}")
    return list(dict.fromkeys(command for kind in commands for command in kind))


def missing_rates(head: pd.DataFrame, ladder: list[float], choosing: int) -> Iterator[str]:
    """Runs at the rates beside a head's best one that were not tried."""
    first = head[head["seed"] == choosing].sort_values("valid_ppl")
    for _, tried in first.groupby("module.transform_lr", dropna=False):
        best = tried.iloc[0]
        below, above = bisect_left(ladder, best["rate"]), bisect_right(ladder, best["rate"])
        for rate in ladder[max(below - 1, 0) : above + 1]:
            if rate not in set(tried["rate"]):
                yield _command(best, **{"optimizer.lr": f"{rate:g}"})


def missing_seeds(head: pd.DataFrame, rule: dict[str, Any]) -> list[str]:
    """At the best rates of a head, the fresh seeds that it lacks."""
    best, at_best = _at_best(head, head, rule)
    return [_command(best, seed=seed) for seed in rule["fresh"] if seed not in set(at_best["seed"])]


def missing_trunks(
    head: pd.DataFrame, among: pd.DataFrame, trunks: pd.Series[str], rule: dict[str, Any]
) -> list[str]:
    """At the best rates of a head, with the first fresh seed, the further trunks that it lacks.

    Args:
        trunks: their folders, by their names.
    """
    best, at_best = _at_best(head, among[among["label"] == head["label"].iloc[0]], rule)
    seed = rule["fresh"][0]
    tried = set(at_best.loc[at_best["seed"] == seed, "trunk_of"])
    further = {name: folder for name, folder in trunks.items() if name not in tried}
    return [_command(best, seed=seed, **{"trunk.of": folder}) for folder in further.values()]


def _at_best(
    head: pd.DataFrame, among: pd.DataFrame, rule: dict[str, Any]
) -> tuple[pd.Series[Any], pd.DataFrame]:
    """The best run of a head with the choosing seed, and of some runs those at its rates."""
    best = head[head["seed"] == rule["choosing"]].sort_values("valid_ppl").iloc[0]
    rates = list(RATES)
    return best, among[(among[rates] == best[rates]).all(axis=1)]


def _command(run: pd.Series[Any], **options: object) -> str:
    """The command that trained a run, with other values of some options, for any device."""
    words = shlex.split(RunFolder(Path(run["folder"])).read_config()["command"])
    dropped = ("sweep.", "callbacks=", "logger=", *(f"{option}=" for option in options))
    kept = [word for word in words if not word.startswith(dropped)]
    return shlex.join([*kept, *(f"{option}={value}" for option, value in options.items())])

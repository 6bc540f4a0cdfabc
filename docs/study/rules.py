"""Which runs the study still lacks, by the rules in rules.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from texts import RATES, read

from lmkit.runs.folder import RunFolder

RULES = Path(__file__).with_name("rules.md")


def rules() -> dict[str, Any]:
    """The block of rules.md that says how rates are chosen, and which sweeps there are."""
    block = re.search(r"```yaml\n(.*?)```", RULES.read_text("utf-8"), re.DOTALL)
    assert block is not None
    found: dict[str, Any] = yaml.safe_load(block[1])
    return found


def asked_for(folder: Path) -> list[str]:
    """The commands that rules 1 and 2 ask for next: of sweeps, then of rates, then of fresh seeds.

    A head is searched further once it was tried at the two rates of its sweep.
    """
    rule, runs = rules(), read(folder)
    commands: list[list[str]] = [[], [], []]
    for sweep, of in rule["sweeps"].items():
        among = runs.query(of["runs"])
        for trunk in of.get("trunks", [None]):
            on_it = among if trunk is None else among[among["trunk_of"] == trunk]
            heads = [
                head
                for _, head in on_it.groupby(["label", "rms"], dropna=False)
                if head.loc[head["seed"] == rule["choosing"], "rate"].nunique() > 1
            ]
            if len(heads) < of["heads"]:
                where = [] if trunk is None else [f"trunk.of={folder / trunk}"]
                words = ["lmkit", "train", f"multirun_sweeps={sweep}", *where, f"runs_dir={folder}"]
                commands[0].append(shlex.join(words))
            for head in heads:
                rates = list(missing_rates(head, of["rates"], rule["choosing"]))
                commands[1] += rates
                commands[2] += [] if rates else missing_seeds(head, rule)
    return [command for kind in commands for command in kind]


def missing_rates(head: pd.DataFrame, ladder: list[float], choosing: int) -> Iterator[str]:
    """While the best rate of a head is an edge of those tried: a run at the next rate beyond it."""
    first = head[head["seed"] == choosing].sort_values("valid_ppl")
    for _, tried in first.groupby("module.transform_lr", dropna=False):
        best = tried.iloc[0]
        at = ladder.index(best["rate"])
        for rate in ladder[max(at - 1, 0) : at + 2]:
            if rate not in set(tried["rate"]):
                yield _command(best, "optimizer.lr", rate)


def missing_seeds(head: pd.DataFrame, rule: dict[str, Any]) -> list[str]:
    """At the best rates of a head, the fresh seeds that it lacks."""
    first = head[head["seed"] == rule["choosing"]].sort_values("valid_ppl")
    best, rates = first.iloc[0], list(RATES)
    tried = set(head.loc[(head[rates] == best[rates]).all(axis=1), "seed"])
    return [_command(best, "seed", seed) for seed in rule["fresh"] if seed not in tried]


def _command(run: pd.Series[Any], option: str, value: float) -> str:
    """The command that trained a run, with another value of one option."""
    words = shlex.split(RunFolder(Path(run["folder"])).read_config()["command"])
    kept = [word for word in words if not word.startswith((f"{option}=", "sweep."))]
    return shlex.join([*kept, f"{option}={value:g}"])

"""Which next words runs expect: `lmkit predictions run=FOLDER`.

Parthiban et al. 2021, figure 3 and supplement, table 2; Yang et al. 2018, on where MoS is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.analyses.prediction_study import PredictionOptions


@entry_point("predictions")
def main(config: DictConfig) -> None:
    """Predicts with each run, and prints a run's tables, or a line for each of many."""
    plain = plain_config(config)
    options = _checked(plain)
    from lmkit.analyses.prediction_study import Predictor
    from lmkit.evaluation.each_run import each_run

    predictor = Predictor(options, plain["against"])
    found = each_run(plain["run"], options.data_root, options.threads, predictor.predict)
    _show(found)


def _checked(plain: dict) -> PredictionOptions:
    """The options for each run. Raises: UserError naming the one that is wrong."""
    require_choice("split", plain["split"], ("train", "valid", "test"))
    for option in ("random", "hits", "seed", "margins"):
        require_count(option, plain[option], 0)
    if plain["threads"] is not None:
        require_count("threads", plain["threads"])
    for option in ("run", "against"):
        if not isinstance(plain[option], str | None):
            raise UserError(f"{option} must be a folder, but is {plain[option]!r}")
    if any(not isinstance(text, str) for text in plain["texts"]):
        raise UserError(f"texts must be a list such as [the company said], not {plain['texts']!r}")
    from lmkit.analyses.prediction_study import PredictionOptions

    return PredictionOptions(*(plain[name] for name in PredictionOptions._fields))


def _show(found: dict[str, dict]) -> None:
    from rich.console import Console

    from lmkit.analyses.prediction_report import contexts_table, margins_table

    console = Console()
    if len(found) == 1:
        ((name, content),) = found.items()
        if content["contexts"]:
            console.print(contexts_table(content["contexts"], f"{name}: likeliest next words"))
        against = content.get("against")
        for how in ("better", "worse") if against else ():
            title = f"{name}: where it is {how} than {against['run']}"
            console.print(margins_table(against[how], title))
    for name, content in found.items():
        hits = content["hits"]
        count = len(hits["positions"])
        if count:
            shares = (f"{100 * sum(hits[top]) / count:.1f} %" for top in ("top1", "top5"))
            print("{}: of {:,} words at random {} are first, {} among five".format(
                name, count, *shares
            ))

"""How Press's rank of a run's log P answers to rounding and noise.

    lmkit press_robustness run=FOLDER
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count, require_positive

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.evaluation.load import LoadedRun
    from lmkit.evaluation.press_robustness import Robustness, RobustnessOptions


@entry_point("press_robustness")
def main(config: DictConfig) -> None:
    """Checks the options, studies the run, and leaves a table, a JSON file and a figure."""
    plain = plain_config(config)
    options = _checked(plain)
    from lmkit.evaluation.load import load_run
    from lmkit.evaluation.press_robustness import num_steps, study
    from lmkit.evaluation.rank import progress_bar, require_writable

    run = load_run(plain["run"], plain["checkpoint"], plain["data_root"], plain["threads"])
    require_writable(run.folder.analysis)
    with progress_bar() as progress:
        task = progress.add_task("", total=num_steps(options))
        done = iter(range(num_steps(options)))
        found = study(
            run,
            options,
            lambda name: progress.update(task, completed=next(done), description=name),
        )
    _publish(run, plain["checkpoint"], options, found)


def _checked(plain: dict) -> RobustnessOptions:
    """The options of the study. Raises: UserError naming the option."""
    require_choice("split", plain["split"], ("train", "valid", "test"))
    require_choice("factorisation", plain["factorisation"], ("svd", "qr"))
    require_choice("checkpoint", plain["checkpoint"], ("best", "last"))
    require_count("contexts", plain["contexts"], 2)
    require_count("round_trips", plain["round_trips"], 0)
    require_count("seed", plain["seed"], 0)
    if plain["threads"] is not None:
        require_count("threads", plain["threads"])
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a run folder, but is {plain['run']!r}")
    if not isinstance(plain["noise"], list) or not plain["noise"]:
        raise UserError(f"noise must be a list such as [1e-20,1e-22], but is {plain['noise']!r}")
    for c in plain["noise"]:
        require_positive("noise", c)
    from lmkit.evaluation.press_robustness import RobustnessOptions

    return RobustnessOptions(*(plain[name] for name in RobustnessOptions._fields))


def _publish(
    run: LoadedRun, checkpoint: str, options: RobustnessOptions, found: Robustness
) -> None:
    from rich.console import Console

    from lmkit.analyses.robustness_report import comparison, figure, tables
    from lmkit.presentation.figures import save
    from lmkit.runs.atomic import replace_atomically

    console, name = Console(), run.folder.path.name
    for table in tables(found, name):
        console.print(table)
    published = comparison(found)
    if published is not None:
        print(f"published: {published.source}; on noise it is about any log P of this size")
    folder = run.folder.analysis
    folder.mkdir(exist_ok=True)
    content = {
        "schema_version": 1,
        "kind": "press_robustness",
        "checkpoint": checkpoint,
        "averaged": run.averaged,
        **options._asdict(),
        **found._asdict(),
        "noise": [noisy._asdict() for noisy in found.noise],
        "published": None if published is None else published._asdict(),
    }
    text = json.dumps(content, indent=2) + "\n"
    path = folder / "press_robustness.json"
    replace_atomically(path, lambda file: file.write(text.encode()))
    save(figure(found, options, name), path.with_suffix(".svg"))
    print(f"figure:  {path.with_suffix('.svg')}")
    print(f"figures: {path}")

"""The share of the loss gradient that reaches the context vectors of a run.

    lmkit gradient_bottleneck run=FOLDER
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.folder import RunFolder

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.evaluation.gradient_bottleneck import BottleneckOptions, MeasuredCheckpoint


@entry_point("gradient_bottleneck")
def main(config: DictConfig) -> None:
    """Checks the options, measures each checkpoint, prints a table and writes a JSON file."""
    plain = plain_config(config)
    options = _checked(plain)
    from lmkit.evaluation.gradient_bottleneck import measure_checkpoints

    run = RunFolder(Path(plain["run"]))
    if not run.path.is_dir():
        raise UserError(f"run={plain['run']} is no folder; give the folder of a run")
    measured = measure_checkpoints(run, options)
    _show(run, measured, options)
    _write(run, measured, options)


def _checked(plain: dict) -> BottleneckOptions:
    """The options. Raises: UserError naming the one that is wrong."""
    require_choice("split", plain["split"], ("train", "valid", "test"))
    for option in ("contexts", "threads"):
        if plain[option] is not None:
            require_count(option, plain[option])
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a run folder, but is {plain['run']!r}")
    from lmkit.evaluation.gradient_bottleneck import BottleneckOptions

    return BottleneckOptions(*(plain[name] for name in BottleneckOptions._fields))


def _show(run: RunFolder, measured: list[MeasuredCheckpoint], options: BottleneckOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    first = measured[0].bottleneck
    table = Table(
        title=f"{run.path.name}: gradient that reaches the contexts, of the first "
        f"{first.num_contexts:,} {options.split} contexts"
    )
    table.add_column(no_wrap=True)
    for found in measured:
        weights = "averaged" if found.averaged else "raw"
        table.add_column(f"{found.checkpoint} (epoch {found.epoch}, {weights})", justify="right")
    table.add_row("decoder's rank", *(str(found.bottleneck.decoder_rank) for found in measured))
    table.add_row("words", *(f"{found.bottleneck.num_words:,}" for found in measured))
    for title, field in (
        ("share of all gradients", "share"),
        ("mean share", "mean_share"),
        ("  5 % are below", "low_share"),
        ("  5 % are above", "high_share"),
        ("a random direction's", "isotropic_share"),
    ):
        table.add_row(title, *(f"{getattr(found.bottleneck, field):.4f}" for found in measured))
    Console().print(table)


def _write(run: RunFolder, measured: list[MeasuredCheckpoint], options: BottleneckOptions) -> None:
    from lmkit.evaluation.gradient_bottleneck import logged_epochs

    checkpoints = [
        {
            "checkpoint": found.checkpoint,
            "epoch": found.epoch,
            "averaged": found.averaged,
            **found.bottleneck._asdict(),
        }
        for found in measured
    ]
    content = {
        "schema_version": 1,
        "kind": "gradient_bottleneck",
        **checkpoints[0],
        "split": options.split,
        "checkpoints": checkpoints,
        "epochs": logged_epochs(run),
    }
    run.analysis.mkdir(exist_ok=True)
    text = json.dumps(content, indent=2) + "\n"
    path = run.analysis / "gradient_bottleneck.json"
    replace_atomically(path, lambda file: file.write(text.encode()))
    print(f"figures: {path}")

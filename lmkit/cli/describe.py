"""Shows what would be trained, without training: `lmkit describe experiment=NAME`.

Parameters by part, trainable and in all, their bytes, and the FLOPs of the matrix products a token,
forward and with the backward pass (the formulas stand in lmkit/training/model_size.py). The corpus
is read for the size of its vocabulary; the model is made without memory for its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lmkit.cli.entry import entry_point, plain_config

if TYPE_CHECKING:  # both bring torch, and --help must not wait for it
    from lmkit.data.corpus import TextSplits
    from lmkit.training.model_size import Part

CHOICES = ("trunk", "head", "head.mixture", "head.transform", "objective", "optimizer", "trigger")
LEGEND = """\
MFLOPs: two FLOPs a multiply-add of the matrix products, forward or (training)
forward and backward. Gates, dropout, transforms and softmax are left out."""


@entry_point("describe")
def main(config: DictConfig) -> None:
    """Builds the model on the meta device and prints two tables."""
    plain = plain_config(config)
    import torch

    from lmkit.training.build import build_model, create
    from lmkit.training.model_size import parts, total

    create(plain["trigger"], "trigger")
    corpus = create(plain["data"], "data").load()
    with torch.device("meta"):
        model = build_model(plain, torch.from_numpy(corpus.train_word_counts()))
    found = parts(model)
    console = Console()
    console.print(configuration_table(plain, corpus))
    console.print(size_table([*found, total(found)]))
    console.print(LEGEND, style="dim")


def configuration_table(config: dict, corpus: TextSplits) -> Table:
    """One row for each choice: the class, its options and their values."""
    table = Table(title=config["name"], show_header=False)
    table.add_column(style="bold")
    table.add_column()
    sizes = " / ".join(f"{len(split):,}" for split in (corpus.train, corpus.valid, corpus.test))
    table.add_row(
        "data", f"{config['data']['name']}: {len(corpus.vocabulary):,} words, {sizes} tokens"
    )
    for option in CHOICES:
        section = config
        for key in option.split("."):
            section = section[key]
        if "_target_" not in section:  # of the head that is made of mixture and transform alone
            continue
        values = {k: v for k, v in section.items() if k != "_target_" and not isinstance(v, dict)}
        table.add_row(option, f"{section['_target_'].rpartition('.')[2]}({_listed(values)})")
    table.add_row("windows", _listed(config["windows"]))
    table.add_row("budget", _listed({key: config[key] for key in ("max_epochs", "patience")}))
    table.add_row("seed", str(config["seed"]))
    return table


def size_table(found: list[Part]) -> Table:
    """One row for each part; the last is their total."""
    table = Table(
        title="parameters, and MFLOPs a token",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("part", no_wrap=True)
    for column in ("trainable", "in all", "bytes", "forward", "training"):
        table.add_column(column, justify="right")
    for part in found:
        if part is found[-1]:
            table.add_section()
        counts = (f"{count:,}" for count in (part.trainable, part.parameters, part.num_bytes))
        flops = (f"{flops / 1e6:,.3f}" for flops in (part.forward_flops, part.training_flops))
        table.add_row(part.name, *counts, *flops)
    return table


def _listed(values: dict[str, object]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())

"""Shows what would be trained, without training: `lmkit describe experiment=NAME`.

It shows trainable and total parameters of trunk and head, their bytes, and the FLOPs of their
matrix products per token, forward and with the backward pass, as PyTorch counts them. The corpus is
read for the size of its vocabulary; the model's weights take no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console

from lmkit.cli.entry import entry_point, plain_config
from lmkit.data.corpus import Corpus, Sizes, TextSplits
from lmkit.experiment.definition import check_plain_options
from lmkit.experiment.make import make
from lmkit.presentation.quantities import rough_duration
from lmkit.presentation.tables import Column, Row, Table, decimal, key_values, plain_table

if TYPE_CHECKING:  # it imports torch, which --help must not wait for
    from lmkit.experiment.model_size import Size

HEAD = ("head", "head.mixture", "head.transform")
CHOICES = ("trunk", *HEAD, "objective", "optimizer", "schedule", "trigger")
LEGEND = """\
MFLOPs: two FLOPs per multiply-add of the matrix products, forward or (training)
forward and backward. Gates, dropout, transforms and softmax are left out."""


@entry_point("describe")
def main(config: DictConfig) -> None:
    """Builds the model on the meta device and prints two tables."""
    from lmkit.experiment.model_size import model_sizes, model_without_weights  # bring torch
    from lmkit.experiment.objects import make_callbacks, require_fit, try_rest

    plain = plain_config(config)
    check_plain_options(plain)
    try_rest(plain)
    source = make(plain["data"], "data", Corpus)
    require_fit(plain, source)
    corpus: Sizes = source.sizes()
    model = model_without_weights(plain, corpus.num_words)
    make_callbacks(plain, model)
    sizes = model_sizes(model)
    console = Console()
    console.print(configuration_table(plain, corpus, source.unit))
    console.print(size_table(sizes))
    console.print(LEGEND, style="dim")
    if issubclass(source.splits, TextSplits):
        console.print(time_line(plain, corpus, sizes["total"]), highlight=False, soft_wrap=True)


def time_line(config: dict[str, Any], corpus: Sizes, whole: Size) -> str:
    """An estimate of the training time here, from the FLOPs and the speed of a matrix product."""
    import torch  # which --help must not wait for

    from lmkit.experiment.model_size import SHARE, flops_per_second

    train, valid, _ = corpus.num_tokens
    limit, windows = config["trainer"].get("limit_train_batches"), config["windows"]
    if limit is not None:
        train = min(train, limit * windows["batch_size"] * windows["bptt"])
    on_gpu = torch.cuda.is_available() and config["trainer"].get("accelerator") != "cpu"
    rate = flops_per_second(config["threads"], on_gpu)
    flops = (whole.training_flops or 0) * train + (whole.forward_flops or 0) * valid
    seconds = flops / (SHARE * rate)
    epochs, text = config["max_epochs"], f"about {rough_duration(seconds)} per epoch"
    if epochs is not None:
        text += f", {rough_duration(seconds * epochs)} for {epochs:,} epochs"
    return (
        f"time: {text}, without transforms and measurements; by the FLOPs, at {SHARE:.0%} of the "
        f"{rate / 1e9:,.0f} GFLOP/s that a matrix product reaches here"
    )


def configuration_table(config: dict[str, Any], corpus: Sizes, unit: str) -> Table:
    """One row per choice: the class, its options and their values."""
    sizes = " / ".join(f"{tokens:,}" for tokens in corpus.num_tokens)
    rows = [("data", f"{config['data']['name']}: {corpus.num_words:,} {unit}, {sizes} tokens")]
    for option in CHOICES:
        section = config
        for key in option.split("."):
            section = section[key]
        values = {k: v for k, v in section.items() if k != "_target_" and not isinstance(v, dict)}
        rows.append((option, f"{section['_target_'].rpartition('.')[2]}({_listed(values)})"))
    windows = {k: v for k, v in config["windows"].items() if k != "_target_"}
    rows.append(("windows", _listed(windows)))
    rows.append(("budget", _listed({key: config[key] for key in ("max_epochs", "patience")})))
    rows.append(("seed", str(config["seed"])))
    return key_values(config["name"], rows)


def size_table(sizes: Mapping[str, Size]) -> Table:
    """One row per part; the total is the last."""
    names = ("part", "trainable", "in all", "bytes", "forward", "training")
    columns = [Column(name, is_text=name == "part") for name in names]
    rows: list[Row] = []
    for name, size in sizes.items():
        mflops = (
            "" if flops is None else decimal(flops / 1e6, 3)
            for flops in (size.forward_flops, size.training_flops)
        )
        rows.append([name, size.trainable, size.parameters, size.num_bytes, *mflops])
    return plain_table("parameters, and MFLOPs per token", columns, rows, rules=[len(rows) - 1])


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())

"""A transform over the logits that it acts on: `lmkit logits run=FOLDER`.

Curve and histogram as in Parthiban et al. 2021, figure 1, for any transform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.evaluation.load import LoadedRun


@entry_point("logits")
def main(config: DictConfig) -> None:
    """Measures each run, and prints what range its logits have."""
    plain = plain_config(config)
    require_choice("split", plain["split"], ("train", "valid", "test"))
    require_count("contexts", plain["contexts"])
    require_count("bins", plain["bins"])
    if plain["threads"] is not None:
        require_count("threads", plain["threads"])
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a folder, but is {plain['run']!r}")
    from lmkit.evaluation.each_run import each_run

    def analyse(run: LoadedRun) -> dict:
        return measure(run, plain["split"], plain["contexts"], plain["bins"])

    found = each_run(plain["run"], plain["data_root"], plain["threads"], analyse)
    _show(found)


def measure(run: LoadedRun, split: str, contexts: int, bins: int) -> dict:
    """Measures the first contexts of a split, as many as there are up to `contexts`."""
    from lmkit.evaluation.each_run import write_analysis
    from lmkit.evaluation.logits import model_logits
    from lmkit.evaluation.rank import progress_bar, shown_windows

    windows = run.data.eval_windows(split)
    count = min(contexts, windows.num_targets)
    with progress_bar() as progress:
        shown = shown_windows(windows, count, progress, run.folder.path.name, "histogram")
        found = model_logits(run.model, shown, count, bins)
    content = {
        "split": split,
        "num_contexts": found.num_contexts,
        "transform": run.config["head"]["transform"]["_target_"].rpartition(".")[2],
        "histogram": found.histogram._asdict(),
        "curve": found.curve._asdict(),
    }
    write_analysis(run, "logits", content)
    return content


def _show(found: dict[str, dict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="logits, and what the transform makes of them")
    table.add_column("run", overflow="fold")
    table.add_column("transform", overflow="fold")
    for name in ("contexts", "smallest", "largest", "transformed to", "and to"):
        table.add_column(name, justify="right")
    for name, content in found.items():
        logit, transformed = content["curve"]["logit"], content["curve"]["transformed"]
        ends = (logit[0], logit[-1], transformed[0], transformed[-1])
        contexts = f"{content['num_contexts']:,}"
        table.add_row(name, content["transform"], contexts, *(f"{end:.2f}" for end in ends))
    Console().print(table)

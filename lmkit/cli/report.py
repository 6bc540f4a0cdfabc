"""Tables and figures over many runs, ours beside the published ones: `lmkit report`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, experiment_config, plain_config


@entry_point("report")
def main(config: DictConfig) -> None:
    """Writes the page of the selected runs, and prints what was left out."""
    plain = plain_config(config)
    # these import matplotlib and scipy, which --help must not wait for
    from rich.console import Console

    from lmkit.analyses.finding import find_analyses
    from lmkit.report.contents import make_report
    from lmkit.report.rank_and_perplexity import perplexity_window
    from lmkit.runs.finished import LeftOut
    from lmkit.runs.selection import select_runs

    window = perplexity_window(plain["window"])
    console = Console()
    with console.status(f"reading {plain['runs']}"):
        selected = select_runs("runs", plain["runs"], plain["runs_dir"])
        analyses = find_analyses()
    unread = [LeftOut(name, reason) for name, reason in selected.left_out.items()]
    left_out = [*unread, *analyses.left_out]
    said = plain["runs"] if isinstance(plain["runs"], list) else [plain["runs"]]
    with console.status("drawing"):
        page = make_report(
            selected.runs,
            analyses=analyses.classes,
            experiments=experiment_config,
            baseline=plain["baseline"],
            window=window,
            out=Path(plain["out"]),
            left_out=left_out,
            studies_in=[Path(each) for each in said],
        )
    for each in left_out:
        print(f"left out: {each.name}: {each.reason}")
    print(f"{len(selected.runs):,} runs: {page}")

"""The page over many runs, beside the published values: `lmkit report`."""

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from lmkit.cli.entry import entry_point, plain_config
from lmkit.cli.finetune import published_config
from lmkit.errors.user_error import UserError, require_flag, require_folder, require_text
from lmkit.presentation.tables import counted
from lmkit.results.frame import frame
from lmkit.results.published import published
from lmkit.runs.analysis_files import of_no_analysis
from lmkit.runs.selection import select_folders


def _require_published(title: str) -> None:
    """Raises UserError unless it is a paper, or one with tables of it that have values."""
    every, (name, *rest) = published(), title.split(", ", 1)
    papers, of_paper = every["paper"].unique(), every.loc[every["paper"] == name, "table"].unique()
    if name not in papers:
        raise UserError(f"paper={title} must begin with one of {', '.join(papers)}")
    for part in "; ".join(rest).split("; "):
        if part and not any(f"{part} ".startswith(f"{table} ") for table in of_paper):
            raise UserError(f"paper={title}: {name} has values of {', '.join(of_paper)}")


@entry_point("report")
def main(config: DictConfig) -> None:
    """Writes the page of the selected runs, and prints what is left out."""
    from lmkit.analyses.finding import find_analyses
    from lmkit.report.contents import make_report

    plain = plain_config(config)
    require_flag("strict", plain["strict"])
    require_folder("out", plain["out"])
    for option in ("baseline", "title", "paper"):
        require_text(option, plain[option])
    _require_published(plain["paper"])
    console = Console()
    with console.status(f"reading {plain['runs']}"):
        folders, models, damaged = select_folders(
            "runs", plain["runs"], plain["runs_dir"], with_models=True
        )
        runs = frame(folders, damaged)
        analyses, left_out = find_analyses()
        known = [kind.name for kind in analyses]
        known += [name.rpartition("/")[2] for name in left_out]  # that cannot be loaded
        for stem in of_no_analysis([*folders, *models], known):
            left_out[f"analysis/{stem}.json"] = (
                "of no analysis known here: --config-dir names yours"
            )
        new = [folder.path.name for folder in folders if folder.path.name not in runs.index]
        left_out = dict.fromkeys(new, "it has not been started") | left_out
    with console.status("drawing"):
        written = make_report(
            runs,
            analyses=analyses,
            compose=published_config,
            baseline=plain["baseline"],
            out=Path(plain["out"]),
            models=models,
            left_out=left_out,
            title=plain["title"],
            about=plain["about"],
            paper=plain["paper"],
        )
    for name, reason in written.left_out.items():
        print(f"left out: {name}: {reason}")
    counts = [counted(written.num_runs, "run")] if written.num_runs or not models else []
    if models:
        counts.append(counted(len(models), "pretrained model"))
    print(f"{', '.join(counts)}: {written.page}")
    if plain["strict"] and (number := len(written.left_out)):
        count = "1 was" if number == 1 else f"{number:,} were"
        raise UserError(f"strict=true: {count} left out of the report")

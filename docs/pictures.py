"""Makes README's pictures and its table of heads, from five runs that it trains.

    python docs/pictures.py RUNS        trains in the folder RUNS what is not there yet, draws
    LMKIT_DATA must hold Penn Treebank (`lmkit download penn`). Thirteen minutes of one core.

It writes docs/pictures/spectra.svg, the spectra of the five heads; the table in README between two
comments; and docs/pictures/report.png, the top of the report, where there is a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lmkit.presentation.figures import save
from lmkit.presentation.published import published_section
from lmkit.presentation.spectrum_figures import LabelledSpectrum, log_figure
from lmkit.presentation.style import house_style
from lmkit.runs.atomic import replace_text
from lmkit.runs.finished import FinishedRun
from lmkit.runs.selection import select_runs
from lmkit.runs.spectrum_files import final_spectrum, read_spectrum

PICTURES = Path(__file__).resolve().parent / "pictures"
README = PICTURES.parents[1] / "README.md"
BEGINS, ENDS = "<!-- heads: python docs/pictures.py -->\n", "<!-- end of heads -->\n"
HEADS = (
    "head/transform=identity",
    "head/transform=sigsoftmax",
    "head/transform=gss",
    "head/transform=plif",
    "head/mixture=softmaxes head.mixture.num_experts=5",
)
SIZES = (
    *("experiment=penn_study", "name=picture", "data.train_tokens=200000", "seed=141"),
    *("switch_epoch=4", "max_epochs=6", "conclusion.contexts=4000"),
    *("callbacks.spectrum=null", "logger=csv"),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECTIONS = "sections=[performance,rank,spectra]"
WINDOW = (1100, 1250)  # pixels of the report's thumbnail


def lmkit(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "lmkit", *arguments], check=True)


def train(folder: Path) -> list[FinishedRun]:
    """The five runs, in the order of HEADS."""
    for options in HEADS:
        lmkit("train", *SIZES, f"runs_dir={folder}", *options.split())
    return in_order(folder)


def in_order(folder: Path) -> list[FinishedRun]:
    return sorted(select_runs("runs", str(folder)).runs, key=lambda run: run.names.place)


@house_style()
def spectra(runs: Sequence[FinishedRun]) -> Figure:
    """The singular values of all runs, in one figure."""
    labelled = []
    for run in runs:
        stored = read_spectrum(final_spectrum(run.folder))
        labelled.append(LabelledSpectrum(run.names.head, stored.relative_S, stored.measures))
    return log_figure(labelled)


def table(runs: Sequence[FinishedRun]) -> str:
    """One row a head, in Markdown: what was measured here, what was published at full size."""
    published = published_section("runs")
    contexts = runs[0].result.metrics["test_spectrum"]["num_contexts"]
    columns = (
        *("head", "test perplexity, small", f"Press rank, of {contexts:,} at most"),
        *("test perplexity, published", "Press rank, of 10,000 at most, published"),
    )
    lines = [columns, ("---",) * len(columns)]
    for run in runs:
        metrics, facts = run.result.metrics, published[f"penn_{run.names.family}"]
        ppl, rank = (facts[name]["value"][0] for name in ("test_ppl", "press_rank"))
        small = (f"{metrics['test_ppl']:.1f}", f"{metrics['test_spectrum']['press_rank']:,}")
        experts = run.settings["head"]["mixture"].get("num_experts")
        head = f"{run.names.head}, K = {experts}" if experts else run.names.head
        lines.append((head, *small, f"{ppl:.2f}", f"{rank:,}"))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(readme: str, rows: str) -> str:
    """README with these rows in place of those between its two comments."""
    before, _, rest = readme.partition(BEGINS)
    _, end, after = rest.partition(ENDS)
    if not end:
        sys.exit(f"error: README lacks a line {BEGINS.strip()} or, after it, {ENDS.strip()}")
    return f"{before}{BEGINS}{rows}{ENDS}{after}"


def thumbnail(runs: Sequence[FinishedRun], target: Path) -> None:
    """The top of the report as a browser shows it; says so where there is no browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"{target} stays as it is: none of {', '.join(BROWSERS)} is installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        chosen = ",".join(str(run.folder.path) for run in runs)
        title = "title=Heads on Penn Treebank"
        lmkit("report", f"runs=[{chosen}]", f"out={folder}/report", title, SECTIONS)
        shot = Path(folder) / "report.png"
        size = ",".join(map(str, WINDOW))
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}")
        page = Path(folder, "report", "index.html").as_uri()
        subprocess.run([browser, *options, f"--screenshot={shot}", page], check=True)
        shutil.copyfile(shot, target)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder for the five runs")
    folder = parser.parse_args().runs
    runs = train(folder)
    PICTURES.mkdir(exist_ok=True)
    save(spectra(runs), PICTURES / "spectra.svg")
    replace_text(README, with_table(README.read_text("utf-8"), table(runs)))
    thumbnail(runs, PICTURES / "report.png")


if __name__ == "__main__":
    main()

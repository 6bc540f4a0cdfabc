"""Keeps the runs of lmkit's own study in the repository, and makes its tables and figures of them.

    python docs/study/study.py keep RUNS       copies what has finished in RUNS into docs/study/runs
    python docs/study/study.py restore RUNS    copies it back, so that only the rest is trained
    python docs/study/study.py compare RUNS    says whether runs trained anew in RUNS have the same
                                               digits as those kept
    python docs/study/study.py write           writes the report's tables, figures and page, and
                                               the texts from their templates
    python docs/study/study.py picture         draws the top of the page with Chromium:
                                               docs/pictures/report.png

The texts are README.md beside this script and, between two comments, the first screen of the
project's README.md. Where one names a row that no table has, `write` changes nothing.

What is kept of a run is what its numbers are read from: no checkpoints, no spectra of inner epochs,
and not the folder in which its corpus lay. Every result in the texts comes from a table: a template
says `{table[row][column]:format}`, in Python's format language, where `table` is a file in
tables/ without `penn_` and `.csv`, or one in tables/heads, `heads/pairs`: those are of the six
heads with three seeds alone; or `alone`, the pairs of heads on a fixed trunk. A row is named by its
first cell, or by as many as tell all rows of the table apart: `MoS / ET 7 / 5`. `{finished}` is the
number of runs.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from lmkit.runs.atomic import replace_text
from lmkit.runs.checksums import checked
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import read_spectrum
from lmkit.sweeps.quoting import quoted

FOLDER = Path(__file__).resolve().parent
KEPT = FOLDER / "runs"
FILES = ("identity.json", "metrics.csv", "result.json", "train.log")
TEMPLATE, README = FOLDER / "README.template.md", FOLDER / "README.md"
FIRST_SCREEN, PROJECT = FOLDER / "first_screen.template", FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- docs/study/first_screen.template -->\n", "<!-- end -->\n"
TITLE = "Does a head's rank predict its perplexity?"
ABOUT = (
    "lmkit's own study, at a size that two CPU cores train in a night. The machine did other work "
    "meanwhile, so that seconds an epoch compare no heads."
)
PREFIX = "penn_"  # of the report's files
# pairs of heads on a fixed trunk, for the first screen
ALONE = FOLDER.parent / "heads_alone/tables/penn_subwords_b511f1da1004_pairs.csv"
SIX_HEADS = (  # with three seeds each: their runs, as filters
    "head:softmax trigger.epoch:7",
    "head:ss",
    "head:gss head.transform.c:-1.5 head.transform.k:2.5 trigger.epoch:7",
    "head:lms-plif",
    "head:moc",
    "head:mos head.mixture.num_experts:5 trigger.epoch:7",
)
PAGE_BYTES = 2_000_000  # a larger page is left out
PICTURE = FOLDER.parent / "pictures" / "report.png"
WINDOW = "1100,1040"  # pixels of the picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Number(float):
    """Formats with a true minus sign."""

    def __format__(self, form: str) -> str:
        return super().__format__(form).replace("-", "−")


Rows = dict[str, dict[str, Number | str]]


def copy_finished(source: Path, target: Path, names: str = "penn_study*") -> int:
    """Copies the finished runs of such names that are not there yet. Returns: how many."""
    count = 0
    for result in sorted(source.glob(f"{names}/result.json")):
        run, copy = result.parent, target / result.parent.name
        if copy.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as partial:
            whole = Path(partial) / run.name
            (whole / "spectra").mkdir(parents=True)
            (whole / "config.yaml").write_bytes(config_of(run))
            for name in FILES:
                if (run / name).exists():
                    shutil.copy2(run / name, whole)
            for spectrum in run.glob("spectra/test_*.npz"):
                shutil.copy2(spectrum, whole / "spectra")
            whole.rename(copy)
        count += 1
    return count


def differing(kept: Path, anew: Path) -> list[str]:
    """What is not the same bits in two runs: metrics of the result, spectra of test."""
    of_kept, of_anew = (RunFolder(run).read_result().metrics for run in (kept, anew))
    names = {name for name in of_kept | of_anew if of_kept.get(name) != of_anew.get(name)}
    for file in kept.glob("spectra/test_*.npz"):
        one, other = (read_spectrum(run / "spectra" / file.name) for run in (kept, anew))
        if not np.array_equal(one.singular_values_S, other.singular_values_S):
            names.add(file.name)
    return sorted(names)


def compare(runs: Path) -> None:
    """Prints whether finished runs have the digits of those kept; exits 1 if one has not."""
    both = [result.parent for result in sorted(runs.glob("penn_study*/result.json"))
            if (KEPT / result.parent.name).exists()]  # fmt: skip
    if not both:
        sys.exit(f"error: {runs} has no finished run that is kept here")
    others = 0
    for run in both:
        names = differing(KEPT / run.name, run)
        others += bool(names)
        print(f"{run.name}: {'other ' + ', '.join(names) if names else 'the same digits'}")
    if others:
        sys.exit(1)


def config_of(run: Path) -> bytes:
    """A run's config.yaml without the folders of this machine."""
    config = without_folders(RunFolder(run).read_config())
    return checked(yaml.safe_dump(config, sort_keys=False).encode())


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration as where the corpus has no folder and runs lie in `runs`."""
    kept = config | {"runs_dir": "runs", "data": config["data"] | {"root": None}}
    data = kept["data"]
    if "text" in data:  # of a head alone: its trunk's run, and the corpus of that
        data |= {"folder": f"runs/{Path(data['folder']).name}"}
        data |= {"text": data["text"] | {"root": None}}
    if "command" in config:
        words = re.sub(r"runs_dir=\S+", "runs_dir=runs", config["command"])
        kept["command"] = re.sub(r"trunk\.of=\S*/", "trunk.of=runs/", words)
    return kept


def write() -> None:
    """The report over the kept runs: its tables as CSV, its figures as SVG, its page; the texts."""
    with tempfile.TemporaryDirectory() as folder:
        report, heads = Path(folder) / "report", Path(folder) / "heads"
        make_report(report)
        make_report(heads, SIX_HEADS)
        shutil.copytree(heads / "tables", report / "tables/heads")
        known = tables(report / "tables")
        texts = {
            README: filled(TEMPLATE, known),
            PROJECT: with_first_screen(PROJECT.read_text("utf-8"), known),
        }
        for kind, ending in (("tables", "csv"), ("figures", "svg")):
            shutil.rmtree(FOLDER / kind, ignore_errors=True)
            for file in (report / kind).rglob(f"*.{ending}"):
                copy = FOLDER / kind / file.relative_to(report / kind)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, copy)
        page = report / "index.html"
        if page.stat().st_size <= PAGE_BYTES:
            shutil.copy2(page, FOLDER)
        else:
            (FOLDER / page.name).unlink(missing_ok=True)
    for path, text in texts.items():
        replace_text(path, text)


def make_report(out: Path, filters: Sequence[str] = ("",)) -> None:
    """The report over the kept runs, or over those that one of the filters takes."""
    runs = ",".join(quoted(f"{KEPT} {each}".strip()) for each in filters)
    texts = (f"title={quoted(TITLE)}", f"about={quoted(ABOUT)}")
    options = (f"runs=[{runs}]", f"out={out}", *texts)
    subprocess.run([sys.executable, "-m", "lmkit", "report", *options], check=True)


def tables(folder: Path = FOLDER / "tables") -> dict[str, Rows]:
    """The tables in a folder and those of the six heads in it, `pairs`, `heads/pairs`; `alone`."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*.csv")}
    known = {
        (name.parent / name.stem.removeprefix(PREFIX)).as_posix(): rows_of(path)
        for name, path in paths.items()
    }
    return known | {"alone": rows_of(ALONE)}


def rows_of(path: Path) -> Rows:
    """The rows of a table by their names, each a cell by its column."""
    with path.open(newline="", encoding="utf-8") as file:
        columns, *rows = csv.reader(file)
    cells_each = range(1, len(columns) + 1)
    count = next(n for n in cells_each if len({tuple(row[:n]) for row in rows}) == len(rows))
    names = [" / ".join(row[:count]) for row in rows]
    cells = [dict(zip(columns, map(number_or_text, row), strict=True)) for row in rows]
    return dict(zip(names, cells, strict=True))


def number_or_text(cell: str) -> Number | str:
    try:
        return Number(cell)
    except ValueError:
        return cell


def filled(template: Path, known: dict[str, Rows]) -> str:
    """A template with numbers in place of what names them; ends where one is unknown."""
    try:
        return template.read_text("utf-8").format(finished=len(known["runs"]), **known)
    except KeyError as error:
        sys.exit(f"error: {template} names a table, a row or a column that is not there: {error}")
    except ValueError as error:
        sys.exit(f"error: {template}: {error}")


def with_first_screen(readme: str, known: dict[str, Rows]) -> str:
    """The project's README with what the study found between its two comments."""
    before, begins, rest = readme.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not ends:
        sys.exit(f"error: {PROJECT} lacks the line {BEGINS.strip()} or, after it, {ENDS.strip()}")
    return f"{before}{begins}{filled(FIRST_SCREEN, known)}{ends}{after}"


def draw_picture() -> None:
    """The top of the page as a browser shows it; ends where there is no browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"error: none of {', '.join(BROWSERS)} is installed")
    page = FOLDER / "index.html"
    if not page.is_file():
        sys.exit(f"error: {page} is not there: write it first")
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WINDOW}")
    shot = f"--screenshot={PICTURE}"
    subprocess.run([browser, *options, shot, page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    image = Image.open(PICTURE).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("keep", "restore", "compare", "write", "picture"))
    parser.add_argument(
        "runs", nargs="?", type=Path, help="folder of runs, for all but write and picture"
    )
    arguments = parser.parse_args()
    if arguments.what == "write":
        write()
    elif arguments.what == "picture":
        draw_picture()
    elif arguments.runs is None:
        parser.error(f"{arguments.what} needs the folder of runs")
    elif arguments.what == "keep":
        print(f"{copy_finished(arguments.runs, KEPT)} runs kept in {KEPT}")
    elif arguments.what == "compare":
        compare(arguments.runs)
    else:
        print(f"{copy_finished(KEPT, arguments.runs)} runs restored in {arguments.runs}")


if __name__ == "__main__":
    main()

"""Makes the tables, figures and text of the first study of the runs kept beside it.

    python docs/study/first/first_study.py compare RUNS    says whether runs trained anew in RUNS
                                                           have the same digits as those kept
    python docs/study/first/first_study.py write           writes the report's tables, figures and
                                                           page, and README.md from its template

Where the text names a row that no table has, `write` changes nothing. Every result in it comes from
a table: a file in tables/ without `penn_` and `.csv`, or one in tables/heads, `heads/pairs`, which
are of the six heads with three seeds alone. `{finished}` is the number of runs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lmkit.runs.atomic import replace_text
from lmkit.sweeps.quoting import quoted

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from keeping import Rows, compare, copy_report, correlation, filled, rows_of  # noqa: E402  (docs/study)

KEPT = FOLDER / "runs"
TEMPLATE, README = FOLDER / "README.template.md", FOLDER / "README.md"
TITLE = "Does a head's rank predict its perplexity?"
ABOUT = (
    "lmkit's own study, at a size that two CPU cores train in a night. The machine did other work "
    "meanwhile, so that seconds an epoch compare no heads."
)
PREFIX = "penn_"  # of the report's files
SIX_HEADS = (  # with three seeds each: their runs, as filters
    "head:softmax trigger.epoch:7",
    "head:ss",
    "head:gss head.transform.c:-1.5 head.transform.k:2.5 trigger.epoch:7",
    "head:lms-plif",
    "head:moc",
    "head:mos head.mixture.num_experts:5 trigger.epoch:7",
)


def write() -> None:
    """The report over the kept runs: its tables as CSV, its figures as SVG, its page; the text."""
    with tempfile.TemporaryDirectory() as folder:
        report, heads = Path(folder) / "report", Path(folder) / "heads"
        make_report(report)
        make_report(heads, SIX_HEADS)
        shutil.copytree(heads / "tables", report / "tables/heads")
        text = filled(TEMPLATE, numbers(report / "tables"))
        copy_report(report, FOLDER)
    replace_text(README, text)


def make_report(out: Path, filters: Sequence[str] = ("",)) -> None:
    """The report over the kept runs, or over those that one of the filters takes."""
    runs = ",".join(quoted(f"{KEPT} {each}".strip()) for each in filters)
    texts = (f"title={quoted(TITLE)}", f"about={quoted(ABOUT)}")
    options = (f"runs=[{runs}]", f"out={out}", *texts)
    subprocess.run([sys.executable, "-m", "lmkit", "report", *options], check=True)


def tables(folder: Path = FOLDER / "tables") -> dict[str, Rows]:
    """The tables in a folder, by name, and those of the six heads in it."""
    names = {path: path.relative_to(folder) for path in folder.rglob("*.csv")}
    return {
        (name.parent / name.stem.removeprefix(PREFIX)).as_posix(): rows_of(path)
        for path, name in names.items()
    }


def numbers(folder: Path = FOLDER / "tables") -> dict[str, object]:
    """What the text names."""
    known = tables(folder)
    heads = known["heads/performance"].values()
    ranks, ppl = (
        [float(row[column]) for row in heads]
        for column in ("Press rank (10,000 contexts) mean", "test perplexity mean")
    )
    log_rank_r = correlation(np.log(ranks), ppl)
    return {**known, "finished": len(known["runs"]), "log_rank_r": log_rank_r}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compare").add_argument("runs", type=Path)
    commands.add_parser("write")
    arguments = parser.parse_args()
    if arguments.command == "write":
        write()
    else:
        compare(KEPT, arguments.runs)


if __name__ == "__main__":
    main()

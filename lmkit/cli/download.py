"""Downloads a corpus from its public address and checks it: `lmkit download penn --root data`.

A download that broke off goes on where it stopped; files that are there already are kept.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from lmkit.cli.interruption import ends_in_one_line
from lmkit.data.download import download
from lmkit.data.sources import SOURCES


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lmkit download",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", choices=sorted(SOURCES))
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get("LMKIT_DATA") or "data"),
        help="folder that holds the corpora (default: LMKIT_DATA, else data)",
    )
    options = parser.parse_args(arguments)
    root = options.root.expanduser()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        ends_in_one_line("the same command again goes on"),
        Progress(*columns, TransferSpeedColumn(), console=console) as progress,
    ):
        folder = download(options.corpus, root, progress, SOURCES)
    print(f"{folder} is complete. To use it: export LMKIT_DATA={root.resolve()}")

"""Runs a study, and writes what it found."""

from __future__ import annotations

from pathlib import Path

import torch

from lmkit.presentation.figures import save
from lmkit.presentation.style import house_style
from lmkit.runs.atomic import make_folder, remove_leftovers, replace_text
from lmkit.studies.study import SyntheticStudy


def finish(study: SyntheticStudy, folder: Path, *, seed: int, threads: int) -> None:
    """Runs it, prints its summary, and writes rows.csv and figure.svg into the folder."""
    torch.set_num_threads(threads)
    with house_style():
        found = study.run(seed)
        make_folder(folder)
        remove_leftovers(folder)  # of a study that was killed
        replace_text(folder / "rows.csv", found.rows.to_csv(index=False))
        save(found.figure, folder / "figure.svg")
    print(found.summary.to_string(index=False, float_format="{:.4g}".format))
    print(f"written: {folder / 'rows.csv'}, {folder / 'figure.svg'}")

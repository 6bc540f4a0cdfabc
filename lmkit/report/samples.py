"""Texts that the runs wrote."""

from __future__ import annotations

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Study
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Passage, Section

_SHOWN = 8
_TEXTS = 2  # of each head


def samples(study: Study, files: Files) -> Section:
    """The first texts of one run a head."""
    found, without = files.having(study, "samples")
    groups, note = study.shown(_SHOWN, found)
    passages = []
    for group in groups:
        run = files.representative(group.runs, "samples")
        if run is None:
            continue
        content = files.analysis(run, "samples")
        how = ", ".join(
            f"{name.replace('_', ' ')} {content[name]}"
            for name in ("temperature", "top_k", "seed")
            if content.get(name) is not None
        )
        for text in content["texts"][:_TEXTS]:
            passages.append(Passage(f"{group.label}: {how}", str(text)))
    how = "lmkit generate run=FOLDER"
    missing = [f"no samples.json: {listed(without)}: {how}"] if without else []
    return Section("samples", "Generated text", f"One run a head.{note}", passages, missing)

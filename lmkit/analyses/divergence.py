"""How far apart a run's next-word distributions are: the expected pairwise KL divergence.

Yang et al. 2018, table 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from lmkit import experiment, measures
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.first_contexts import FirstContexts, first_or_all
from lmkit.comparison.cells import spread_cell
from lmkit.comparison.facts import Study
from lmkit.comparison.groups import spread_of
from lmkit.comparison.published import PublishedNumber
from lmkit.comparison.published_runs import Published, not_as_published
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Column, Table, number, spread, whole, word
from lmkit.runs.analysis_files import text_of

_NAME = "pairwise KL, nats"


class _Stored(NamedTuple):
    split: str
    num_contexts: int
    all_contexts: int
    exact: float


class Divergence(Analysis):
    """The expected Kullback-Leibler divergence between the rows of log P of two contexts.

    Args:
        split: train, valid or test.
        contexts: first contexts of the split; None or "all": all of them.
    """

    name, form = "divergence", _Stored
    order = 65
    takes_dialogue = True

    def __init__(self, *, split: str, contexts: int | str | None) -> None:
        self.first = FirstContexts(split, contexts, least=2)

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        windows, count, available = self.first.of(run)
        shown = run.with_bar(windows, count, "divergence")
        measured = measures.model_spectra.pairwise_divergence(run.model, shown, count)._asdict()
        if math.isnan(measured["sampled_standard_error"]):  # for a single pair
            measured["sampled_standard_error"] = None
        whose = {"experiment": run.config["name"], "num_words": len(run.model.head.decoder_bias)}
        return {"split": self.first.split, "all_contexts": available, **whose, **measured}

    def stem(self, content: Content) -> str:
        return f"{self.name}_{self.first.split}_{content['num_contexts']}"

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        rows = []
        for name, content in contents.items():
            fact = _fact(content, self.published_of_run(name))
            rows.append(
                [
                    word(name),
                    word(first_or_all(content["num_contexts"], content["all_contexts"])),
                    number(content["exact"], 4),
                    number(fact.value if fact else None, 3),
                    spread(content["sampled"], content["sampled_standard_error"]),
                    whole(content["num_pairs"]),
                ]
            )
        columns = [
            Column("run", is_text=True),
            Column("contexts"),
            Column(_NAME),
            Column("published, whole split", is_optional=True),
            Column("of sampled pairs", ("mean", "standard error")),
            Column("pairs"),
        ]
        counts = [content["num_contexts"] for content in contents.values()]
        title = f"Pairwise divergence of {self.first.named(self.first.split, counts)}"
        return [Table(self.name, title, "", columns, rows)]

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        notes = []
        shown: dict[str, Published] = {}
        for name, content in contents.items():
            published = self.published_of_run(name)
            fact = _fact(content, published)
            if published is not None and fact is not None:
                notes.append(f"{name}: published of {published.experiment}: {fact.source}")
                shown[name] = published
        return [*notes, *not_as_published(shown.items())]

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        table = _table(study, files)
        missing = [] if table else ["no pairwise divergence: lmkit divergence run=RUNS measures it"]
        intro = "How much does the expected next word depend on the context?"
        blocks = [table] if table else []
        return [Section("divergence", "Pairwise divergence", intro, blocks, missing)]


def _fact(content: Content, published: Published | None) -> PublishedNumber | None:
    """What was published, only for the whole split of the run's own text."""
    is_whole = content["num_contexts"] == content["all_contexts"]
    if published is None or not is_whole or not text_of(content).is_own:
        return None
    return published.facts.divergence.get(content["split"])


def _table(study: Study, files: Files) -> Table | None:
    """A row per group, split and number of contexts; None where nothing was measured."""
    rows = []
    shown: dict[str, Published] = {}  # by the group's label
    for group in study.groups:
        divergences: dict[tuple[str, int, bool], list[float]] = {}
        for run in group.runs:
            for content in files.analyses(run, Divergence):
                contexts, available = content["num_contexts"], content["all_contexts"]
                where = content["split"], contexts, contexts == available
                divergences.setdefault(where, []).append(content["exact"])
        published = group.published
        for (split, contexts, is_whole), values in sorted(divergences.items()):
            fact = published.facts.divergence.get(split) if published and is_whole else None
            if published is not None and fact is not None:
                shown[group.label] = published
            mine = spread_cell(spread_of(values), 3)
            fact_cell = number(fact.value if fact else None, 3)
            sizes = whole(contexts), whole(len(values))
            rows.append([word(group.label), word(split), *sizes, mine, fact_cell])
    if not rows:
        return None
    columns = [
        Column("head", is_text=True),
        Column("split", is_text=True),
        Column("contexts"),
        Column("seeds"),
        Column(_NAME, ("mean", "sd")),
        Column("published, whole split", is_optional=True),
    ]
    caption = (
        f"Expected Kullback–Leibler divergence between the next-word distributions of two contexts "
        f"of {study.short}, exact over all ordered pairs: mean ± one standard deviation over the "
        "seeds that were measured."
    )
    if shown:
        caption += " Published: Yang et al. 2018, table 5."
    notes = not_as_published(shown.items(), study.said)
    return Table("divergence", "Pairwise divergence", caption, columns, rows, notes)

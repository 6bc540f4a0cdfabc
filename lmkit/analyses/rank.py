"""How many dimensions a run's log P spans: its singular values, and its rank by several measures.

Parthiban et al. 2021, figure 7, table 6, supplement, figures 2 to 5; Yang et al. 2018, figure 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lmkit import experiment, measures, pretrained
from lmkit.analyses import decoder_rank, pretrained_rank
from lmkit.analyses.analysis import Analysis, Content, MeasuredRun
from lmkit.analyses.first_contexts import FirstContexts, first_or_all
from lmkit.comparison.cells import MEAN_SD, listed, partly_measured, spread_cell
from lmkit.comparison.facts import EPSILONS, Facts, Study
from lmkit.comparison.groups import median_run
from lmkit.comparison.published import (
    PublishedNumber,
    PublishedRun,
)
from lmkit.comparison.published_runs import Published, not_as_published
from lmkit.comparison.run_files import RANK, Files
from lmkit.errors.user_error import require_choice
from lmkit.presentation.checkpoint_curves import checkpoint_curves, has_curves
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.side_by_side import side_by_side
from lmkit.presentation.spectrum_figures import (
    FIRST_INDICES,
    LabelledSpectrum,
    cumulative_figure,
    log_figure,
    normalised_figure,
    overview,
)
from lmkit.presentation.tables import Cell, Column, Entry, Heading, Table, table_over, whole
from lmkit.runs.analysis_files import text_of
from lmkit.runs.finished import read_finished
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import measured_stem, read_spectrum, write_spectrum

_MATRICES = {"log_probs": "log P", "transformed_logits": "transformed logits"}
_MEASURES = {
    "stable_rank": "stable rank",
    "participation_ratio": "participation ratio",
    "entropy_rank": "entropy rank",
    "condition": "condition",
}
_PRESS, _TEST_PPL, _PUBLISHED = "Press rank", "test perplexity", "  published"  # rows of a table
_SHOWN = 8


class Rank(Analysis):
    """The spectrum of log P, or of transformed logits, with every measure of its rank.

    Args:
        split: train, valid or test.
        contexts: how many contexts, from the split's start, at most; None or "all": all.
        matrix: log_probs or transformed_logits.
        checkpoint: best or last.
    """

    name, schema_version, form = RANK
    order = 60
    takes_dialogue = True

    def __init__(
        self, *, split: str, contexts: int | str | None, matrix: str, checkpoint: str
    ) -> None:
        require_choice("matrix", matrix, tuple(_MATRICES))
        require_choice("checkpoint", checkpoint, ("best", "last"))
        self.first = FirstContexts(split, contexts, least=2)
        self.matrix, self.checkpoint = matrix, checkpoint

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        windows, count, available = self.first.of(run)
        shown = run.with_bar(windows, count, "singular values")
        spectra = measures.model_spectra.run_spectra(run.model, shown, count, self.matrix)
        content = {
            "split": self.first.split,
            "matrix": self.matrix,
            "all_contexts": available,
            "experiment": run.config["name"],
            "test_ppl": read_finished(run.folder).metric("test_ppl"),
            "spectrum": spectra.spectrum.measures.to_dict(),
        }
        values = spectra.spectrum.singular_values.cpu().numpy()
        stem = self._file_stem(content) + run.text().suffix
        write_spectrum(run.folder.spectra / f"{stem}.npz", values, content["spectrum"])
        return content | decoder_rank.stored(
            run.folder, self.checkpoint, spectra.weight, spectra.mean_cosine
        )

    def measure_pretrained(
        self, loaded: pretrained.loading.LoadedPretrained, text: str, folder: RunFolder
    ) -> Content:
        return pretrained_rank.measure_rank(loaded, text, folder, self.first, self.matrix)

    def stem(self, content: Content) -> str:
        return f"rank_{self._file_stem(content)}"

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        cells = {
            name: _cells(content, self.published_of_run(name)) for name, content in contents.items()
        }
        rows = _row_names(cells.values())
        names = [_PUBLISHED if row.endswith(_PUBLISHED) else row for row in rows]
        columns = {name: [of_run.get(row, "") for row in rows] for name, of_run in cells.items()}
        title = self._title(list(contents.values()))
        return side_by_side(self.name, title, names, columns)

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        unresolved = _unresolved(
            (name, c["spectrum"]["unresolved"]) for name, c in contents.items()
        )
        lines = [f"{', '.join(names)}: {line}" for line, names in unresolved.items()]
        published = {name: self.published_of_run(name) for name in contents}
        return lines + _on_published(contents, published)

    def figures(self, measured: Sequence[MeasuredRun], folder: Path) -> dict[Path, Figure]:
        drawn, spectra = {}, []
        for each in measured:
            run, content = each
            stem = self._file_stem(content) + text_of(content).suffix
            title = self._title([content])
            stored = read_spectrum(run.spectra / f"{stem}.npz")
            shown = LabelledSpectrum(run.path.name, stored.relative_S, content["spectrum"])
            weight = decoder_rank.weight_figure(each, self.checkpoint)
            drawn[run.spectra / f"{stem}.svg"] = overview([shown, *weight], title)
            spectra.append(shown)
        if len(measured) > 1:
            contents = [content for _, content in measured]
            title = self._title(contents)
            stem = self._file_stem(content, self.first.limit(_counts(contents)) or "all")
            stem += text_of(content).suffix
            drawn[folder / f"spectra_{stem}.svg"] = overview(spectra, title)
            panels = pretrained_rank.panels(measured)
            if has_curves(panels):
                drawn[folder / f"training_{stem}.svg"] = checkpoint_curves(panels, title)
        return drawn

    def _file_stem(self, content: Content, contexts: int | str | None = None) -> str:
        """The stem of a measurement's file names."""
        count = contexts or content["spectrum"]["num_contexts"]
        return measured_stem(content["split"], self.matrix, count, self.checkpoint)

    def _title(self, contents: Sequence[Content]) -> str:
        content = contents[0]
        which = self.first.named(content["split"], _counts(contents))
        others = {text_of(c).name for c in contents if not text_of(c).is_own}
        if others:
            which += f" of {', '.join(sorted(others))}"
        of = f"{_MATRICES[self.matrix]} of {which}"
        return of if "pretrained" in content else f"{of}, {self.checkpoint} checkpoint"

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        contexts = study.contexts
        groups, note = study.shown(_SHOWN)
        shown, without = _stored(groups, files, contexts)
        missing = []
        if without:
            at = f" over {contexts:,} test contexts" if contexts else ""
            missing.append(f"no singular values{at}: {listed(without)}")
        for n in _table_contexts(study):
            counts = {group: len(group.measured.get(n, {})) for group in study.groups}
            how = f"lmkit rank run=RUNS contexts={n}"
            missing += partly_measured(f"ranks over {n:,} test contexts", counts, how)
        blocks: list[Block] = []
        if shown and contexts:
            blocks += _drawings(study, shown, contexts, note)
        blocks += [_rank_table(study, n) for n in _table_contexts(study)]
        intro = (
            "How quickly do the singular values of log P decay, and does Press's rank say anything "
            "that the decay does not?"
        )
        return [Section("spectra", "Spectra and ranks", intro, blocks, missing)]


def _counts(contents: Sequence[Content]) -> list[int]:
    return [content["spectrum"]["num_contexts"] for content in contents]


def _cells(content: Content, published: Published | None) -> dict[str, str]:
    """A run's column, by row name; published values stand below the measured ones."""
    spectrum = content["spectrum"]
    is_run = "pretrained" not in content
    weights = {"weights": "averaged" if content["averaged"] else "raw"} if is_run else {}
    cells = weights | {
        "contexts": first_or_all(spectrum["num_contexts"], content["all_contexts"]),
        "words": f"{spectrum['num_columns']:,}",
        "method": spectrum["method"],
        "largest singular value": f"{spectrum['sigma_1']:.6g}",
        _PRESS: _number(spectrum["press_rank"]),
    }
    for epsilon, rank in spectrum["effective_rank"].items():
        cells[_effective(epsilon)] = _number(rank)
    for measure, name in _MEASURES.items():
        cells[name] = _number(spectrum[measure])
    cells |= pretrained_rank.cells(content) | decoder_rank.cells(content)
    if _is_of_result(content) and content["test_ppl"] is not None:
        cells[_TEST_PPL] = f"{content['test_ppl']:.2f}"
    facts = _facts(content, published)
    return cells | {f"{name}{_PUBLISHED}": str(fact) for name, fact in facts.items()}


def _row_names(columns: Iterable[Mapping[str, str]]) -> list[str]:
    """All row names, each published value just below the measured one."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    measured = [name for name in names if not name.endswith(_PUBLISHED)]
    pairs = [(name, name + _PUBLISHED) for name in measured]
    return [name for pair in pairs for name in pair if name in names]


def _unresolved(whose: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, dict[str, None]]:
    """A line per unresolved measure and reason, with the names concerned, in order.

    Args:
        whose: the reasons by unresolved measure, by name.
    """
    lines: dict[str, dict[str, None]] = {}
    for name, reasons in whose:
        for measure, why in reasons.items():
            line = f"{measure.replace('_', ' ')} is unresolved: {why}"
            lines.setdefault(line, {})[name] = None
    return lines


def _on_published(
    contents: Mapping[str, Content], published: Mapping[str, Published | None]
) -> list[str]:
    """Where published values come from, and which do not compare."""
    notes = []
    shown: dict[str, Published] = {}
    for name, content in contents.items():
        of_run = published[name]
        if of_run is None:
            continue
        facts = of_run.facts
        if facts.press_rank is not None and not _ranks_compare(content, facts):
            notes.append(
                f"{name}: the published Press rank {facts.press_rank} is of log_probs of the first "
                f"{facts.rank_contexts:,} test contexts, and compares only there: "
                f"contexts={facts.rank_contexts}"
            )
        sources = dict.fromkeys(fact.source for fact in _facts(content, of_run).values())
        if sources:
            notes.append(f"{name}: published of {of_run.experiment}: {'; '.join(sources)}")
            shown[name] = of_run
    return [*notes, *not_as_published(shown.items())]


def _facts(content: Content, published: Published | None) -> dict[str, PublishedNumber]:
    """The published values of what was measured, by row name."""
    if published is None:
        return {}
    facts = published.facts
    by_row: dict[str, PublishedNumber | None] = {}
    if _ranks_compare(content, facts):
        by_row[_PRESS] = facts.press_rank
        by_row |= {_effective(epsilon): fact for epsilon, fact in facts.effective_rank.items()}
    if _is_of_result(content) and content["test_ppl"] is not None:
        by_row[_TEST_PPL] = facts.test_ppl
    return {name: fact for name, fact in by_row.items() if fact is not None}


def _is_of_result(content: Content) -> bool:
    """Whether the run's result is of the same text, split and checkpoint."""
    of = text_of(content).is_own, content["split"], content["checkpoint"]
    return of == (True, "test", "best")


def _ranks_compare(content: Content, facts: PublishedRun) -> bool:
    is_log_probs = content["matrix"] == "log_probs"
    same_size = content["spectrum"]["num_contexts"] == facts.rank_contexts
    return _is_of_result(content) and is_log_probs and same_size


def _effective(epsilon: str) -> str:
    return f"{epsilon}-effective rank"


def _number(value: float | None) -> str:
    if value is None:
        return "unresolved"
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def _table_contexts(study: Study) -> list[int]:
    """The usual number of contexts, and the published one where a run has ranks there."""
    published = study.published_contexts
    has_published = any(group.ranks(published) for group in study.groups)
    counts = [study.contexts, published if has_published else None]
    return list(dict.fromkeys(count for count in counts if count is not None))


def _rank_columns(contexts: int) -> dict[Heading, Callable[[Facts], Entry]]:
    """Every measure over so many contexts, each with its published value."""

    def measure(digits: int, *path: str) -> Callable[[Facts], Cell]:
        return lambda f: spread_cell(f.rank(contexts, path), digits, len(f.measured[contexts]))

    def published(of: Callable[[PublishedRun], PublishedNumber | None]) -> Callable[[Facts], Cell]:
        def cell(f: Facts) -> Cell:
            compares = f.published and f.published.facts.rank_contexts == contexts
            fact = of(f.published.facts) if f.published and compares else None
            return whole(None if fact is None else int(fact.value))

        return cell

    def effective(epsilon: str) -> Callable[[PublishedRun], PublishedNumber | None]:
        return lambda facts: facts.effective_rank.get(epsilon)

    columns: dict[Heading, Callable[[Facts], Entry]] = {
        Column("head", is_text=True): lambda f: f.label,
        "seeds": lambda f: len(f.measured[contexts]),
        Column("Press rank", MEAN_SD): measure(0, "press_rank"),
        Column("Press rank, published", is_optional=True): published(lambda p: p.press_rank),
    }
    for epsilon, name in EPSILONS.items():
        columns[Column(f"{name}-effective rank", MEAN_SD)] = measure(0, "effective_rank", epsilon)
        columns[Column(f"{name}, published", is_optional=True)] = published(effective(epsilon))
    return columns | {
        Column("entropy rank", MEAN_SD): measure(1, "entropy_rank"),
        Column("stable rank", MEAN_SD): measure(3, "stable_rank"),
        **decoder_rank.columns(contexts),
    }


def _rank_table(study: Study, contexts: int) -> Table:
    """Parthiban et al. 2021, table 6."""
    measured = [group for group in study.groups if contexts in group.measured]
    caption = (
        f"Ranks of log P over {contexts:,} test contexts of {study.origin}: mean ± one standard "
        "deviation over the seeds that were measured. The ε-effective rank is "
        "the number of singular values that hold all but a share ε of the sum of squares. "
        "Published ranks appear if they are over as many contexts."
    )
    unresolved = _unresolved(
        (group.label, _mapping(m.spectrum.get("unresolved")))
        for group in measured
        for m in group.measured[contexts].values()
    )
    notes = [
        f"{listed(labels)}: {line}"
        for line, labels in unresolved.items()
        if not line.startswith("condition ")
    ]
    notes += study.not_as_published(
        group
        for group in measured
        if group.published and group.published.facts.rank_contexts == contexts
    )
    key, title = f"ranks_{contexts}", "Press rank and effective ranks"
    rest = study.rest_from(measured)
    columns = _rank_columns(contexts)
    return table_over(measured, key, title, caption, columns, notes, rest_from=rest)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _stored(
    groups: Sequence[Facts], files: Files, contexts: int | None
) -> tuple[list[LabelledSpectrum], list[str]]:
    """Per group, the spectrum of the run of median test perplexity."""
    shown, without = [], []
    for group in groups:
        measured = group.measured.get(contexts or 0, {})
        middle = median_run(list(measured)) if measured else None
        stored = files.spectrum(middle, measured[middle].file) if middle else None
        if stored is None:
            without.append(group.label)
        else:
            shown.append(LabelledSpectrum(group.label, stored.relative_S, stored.measures))
    return shown, without


def _drawings(
    study: Study, shown: Sequence[LabelledSpectrum], contexts: int, note: str
) -> list[Drawing]:
    of = f"log P over {contexts:,} test contexts of {study.origin}, one run per head."
    return [
        Drawing(
            "spectrum_log",
            "Spectrum, log scale",
            f"Singular values of {of} Values below what the computation resolves are cut off; "
            f"the dotted line is the tolerance of Press's rank.{note}",
            log_figure(shown),
        ),
        Drawing(
            "spectrum_normalised",
            "Spectrum, normalised",
            f"Singular values of {of} The largest, 1 at index 1, is left out; of the others the "
            f"first {FIRST_INDICES - 1} are shown, as in Parthiban et al. 2021, figure 7, on a "
            f"logarithmic axis.{note}",
            normalised_figure(shown),
        ),
        Drawing(
            "spectrum_cumulative",
            "Spectrum, cumulative",
            f"Share of singular values at most as large as a threshold, of {of} As in Yang et al. "
            f"2018, figure 1.{note}",
            cumulative_figure(shown),
        ),
    ]

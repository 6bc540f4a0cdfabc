"""Word vectors against human judgement of similarity, and their principal components.

Spearman's rho on 13 benchmarks, and the number of principal components that hold most of the
variance (Parthiban et al. 2021, figure 4, and supplement, tables 3 and 13).

Shapes: V vocabulary, E embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from lmkit import experiment
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.one_per_head import SHOWN, having
from lmkit.comparison.cells import listed, partly_measured, spread_cell
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Group, spread_of
from lmkit.comparison.published import published_section
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_folder
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import figure, heat_map
from lmkit.presentation.tables import Column, Table, absent, number, whole, word

# the paper's names, and the files of Faruqui and Dyer 2014
BENCHMARKS = {
    "WS-353": "EN-WS-353-ALL.txt",
    "WS-353-SIM": "EN-WS-353-SIM.txt",
    "WS-353-REL": "EN-WS-353-REL.txt",
    "RG-65": "EN-RG-65.txt",
    "MC-30": "EN-MC-30.txt",
    "MTurk-287": "EN-MTurk-287.txt",
    "MTurk-771": "EN-MTurk-771.txt",
    "MEN": "EN-MEN-TR-3k.txt",
    "YP-130": "EN-YP-130.txt",
    "VERB-143": "EN-VERB-143.txt",
    "RW-STANFORD": "EN-RW-STANFORD.txt",
    "SimVerb-3500": "EN-SimVerb-3500.txt",
    "SimLex-999": "EN-SIMLEX-999.txt",
}
_SHARES = ("0.75", "0.95")  # of the variance
_COMMAND = "lmkit embeddings run=RUNS"
_NO_RHO = "no word similarity of {}: {}"
_NO_WORDS = "the tokens are subwords, not words"
_INTRO = "Are the word vectors of a head of higher rank better by any measure of their own?"

Rho = Mapping[str, Mapping[str, float]]  # by run or group, and by benchmark


class WordPair(NamedTuple):
    """Two words, in lower case, and how similar people find them."""

    first: str
    second: str
    score: float


class Similarity(NamedTuple):
    """How well the vectors' cosines reproduce a benchmark's order of pairs."""

    spearman: float | None  # None where fewer than two different values are left
    pairs: int  # of the benchmark
    skipped: int  # of these, with a word outside the vocabulary


class _Benchmark(NamedTuple):
    spearman: float | None = None
    pairs: int | None = None
    skipped: int | None = None


class _Stored(NamedTuple):
    word_similarity: dict[str, _Benchmark]
    principal_components: dict[str, int]
    emb_dim: int | None = None
    has_words: bool = True


class Embeddings(Analysis):
    """The geometry of the input embedding, which is also the decoder where weights are tied.

    Args:
        benchmarks: folder of the benchmarks; None: word_similarity beside the run's corpus, if it
        exists.
    """

    name, form = "embeddings", _Stored
    order = 80

    def __init__(self, *, benchmarks: str | None) -> None:
        if benchmarks is not None:
            require_folder("benchmarks", benchmarks)
        self.benchmarks = None if benchmarks is None else Path(benchmarks).expanduser()

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        model, data = experiment.load.as_language_model(run)
        words = data.corpus.vocabulary
        vectors_VE = model.trunk.word_vectors()
        vocabulary = {word: index for index, word in enumerate(words)}
        has_words = run.source.tokenizer_by(words).has_words
        folder = self.benchmarks or _beside_the_corpus(run.config)
        benchmarks = {} if folder is None or not has_words else read_benchmarks(folder)
        return {
            "emb_dim": vectors_VE.shape[1],
            "has_words": has_words,
            "word_similarity": {
                name: similarity(pairs, vocabulary, vectors_VE)._asdict()
                for name, pairs in benchmarks.items()
            },
            "principal_components": principal_components(vectors_VE, _SHARES),
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        """A column per run, then for several runs how often each wins."""
        sets = {name: content["word_similarity"] for name, content in contents.items()}
        rows = []
        for benchmark in BENCHMARKS:
            values = [content.get(benchmark) for content in sets.values()]
            known = next(filter(None, values), None)
            if known is not None:
                skipped = word("{skipped} of {pairs}".format(**known))
                cells = (number(value and value["spearman"], 4) for value in values)
                rows.append([word(benchmark), skipped, *cells])
        for share in _SHARES:
            counts = (whole(c["principal_components"][share]) for c in contents.values())
            rows.append([word(f"components for {float(share):.0%}"), absent(), *counts])
        columns = [Column("", is_text=True), Column("pairs skipped", is_optional=True)]
        columns += [Column(name) for name in contents]
        title = "Spearman's ρ of human judgement and cosine; principal components"
        tables = [Table("embeddings", title, "", columns, rows)]
        if len(contents) > 1 and any(sets.values()):
            rho = {name: _known_rho(content) for name, content in sets.items()}
            tables.append(_wins_table(rho))
        return tables

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        without = [name for name, content in contents.items() if content.get("has_words") is False]
        notes = [_NO_RHO.format(listed(without), _NO_WORDS)] if without else []
        if len(without) < len(contents) and not any(
            content["word_similarity"] for content in contents.values()
        ):
            notes.append("no word similarity: give the benchmarks as benchmarks=FOLDER")
        return notes

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        measured_groups, without = having(study, cls)
        groups, note = study.shown(SHOWN, measured_groups)
        contents = {group: measured for group in groups if (measured := _measured(group, files))}
        missing = [f"no embeddings.json: {listed(without)}: {_COMMAND}"] if without else []
        counts = {group: len(_measured(group, files)) for group in measured_groups}
        missing += partly_measured("embeddings.json", counts, _COMMAND)
        blocks: list[Block] = []
        if contents:
            rho = {g: found for g, measured in contents.items() if (found := _all_rho(measured))}
            if rho:
                blocks = [_rho_table(study, contents, rho), *_published_table(study, [*rho])]
            if len(rho) > 1:
                blocks.append(_wins_drawing(study, rho))
            missing += _without_rho({g: m for g, m in contents.items() if g not in rho})
            blocks.append(_components(study, contents))
        return [Section("embeddings", "Embeddings", _INTRO + note, blocks, missing)]


def read_benchmarks(folder: Path) -> dict[str, list[WordPair]]:
    """The benchmarks in a folder, by the paper's names.

    Raises: UserError naming the file that is missing or damaged.
    """
    return {name: _read(folder / file) for name, file in BENCHMARKS.items()}


def similarity(
    pairs: Sequence[WordPair], vocabulary: Mapping[str, int], vectors_VE: np.ndarray
) -> Similarity:
    """Spearman's rho of scores and cosines, over the pairs with both words in the vocabulary.

    A pair that occurs twice in a file counts twice (WS-353: money, cash); Parthiban et al. count it
    once.
    """
    known = [pair for pair in pairs if pair.first in vocabulary and pair.second in vocabulary]
    skipped = len(pairs) - len(known)
    if len(known) < 2:
        return Similarity(None, len(pairs), skipped)
    first, second = (
        vectors_VE[[vocabulary[word] for word in words]].astype(float)
        for words in ([p.first for p in known], [p.second for p in known])
    )
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / norms
    scores = [pair.score for pair in known]
    if np.ptp(cosines) == 0 or np.ptp(scores) == 0:
        return Similarity(None, len(pairs), skipped)
    rho = float(stats.spearmanr(scores, cosines).statistic)
    return Similarity(rho if math.isfinite(rho) else None, len(pairs), skipped)


def principal_components(vectors_VE: np.ndarray, shares: Sequence[str]) -> dict[str, int]:
    """By share: the smallest number of principal components that hold that share of the
    variance."""
    centred_VE = vectors_VE.astype(float) - vectors_VE.mean(axis=0, dtype=float)
    variances = np.linalg.svd(centred_VE, compute_uv=False) ** 2
    summed = np.cumsum(variances) / variances.sum()
    return {share: int(np.searchsorted(summed, float(share))) + 1 for share in shares}


def win_matrix(rho: Rho) -> np.ndarray:
    """On how many benchmarks the row's rho exceeds the column's, NaN on the diagonal.

    A benchmark counts where both have a rho (Parthiban et al. 2021, figure 4).
    """
    wins = np.full((len(rho), len(rho)), np.nan)
    for i, ours in enumerate(rho.values()):
        for j, theirs in enumerate(rho.values()):
            if i != j:
                wins[i, j] = sum(ours[name] > theirs[name] for name in ours.keys() & theirs.keys())
    return wins


def _read(path: Path) -> list[WordPair]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: benchmarks must be the folder of the word-similarity "
            f"benchmarks; `lmkit download word_similarity root=FOLDER` fetches it"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    pairs = []
    for position, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            first, second, score = line.split()
            pairs.append(WordPair(first.lower(), second.lower(), float(score)))
        except ValueError:
            raise UserError(f"{path}, line {position}: {line!r} is not `word word score`") from None
    return pairs


def _beside_the_corpus(config: Mapping[str, Any]) -> Path | None:
    root = config["data"].get("root")
    folder = None if root is None else Path(root).expanduser() / "word_similarity"
    return folder if folder is not None and folder.is_dir() else None


def _known_rho(word_similarity: Mapping[str, Content]) -> dict[str, float]:
    """The rho of each benchmark that has one."""
    return {
        name: values["spearman"]
        for name, values in word_similarity.items()
        if values.get("spearman") is not None
    }


def _measured(group: Group, files: Files) -> list[Content]:
    return [*files.of_runs(group.runs, Embeddings).values()]


def _all_rho(contents: Sequence[Content]) -> dict[str, list[float]]:
    """The rho of each benchmark, of all runs that have one."""
    rho: dict[str, list[float]] = {}
    for content in contents:
        for name, value in _known_rho(content["word_similarity"]).items():
            rho.setdefault(name, []).append(value)
    return rho


def _without_rho(contents: Mapping[Facts, Sequence[Content]]) -> list[str]:
    """The groups without a rho, by reason."""
    labels: dict[str, list[str]] = {}
    for group, measured in contents.items():
        labels.setdefault(_why_no_rho(measured), []).append(group.label)
    return [_NO_RHO.format(listed(each), reason) for reason, each in labels.items()]


def _why_no_rho(contents: Sequence[Content]) -> str:
    if any(content.get("has_words") is False for content in contents):
        return _NO_WORDS
    if any(content["word_similarity"] for content in contents):
        return "too few words of the benchmarks are in the vocabulary"
    return f"no benchmarks were there: {_COMMAND} benchmarks=FOLDER"


def _wins_table(rho: Rho) -> Table:
    rows = [
        [word(name), *(whole(None if math.isnan(count) else int(count)) for count in row)]
        for name, row in zip(rho, win_matrix(rho), strict=True)
    ]
    title = "benchmarks on which the row's run has the higher ρ"
    return Table("wins", title, "", [Column("", is_text=True), *map(Column, rho)], rows)


def _wins_drawing(study: Study, rho: Mapping[Facts, Mapping[str, Sequence[float]]]) -> Drawing:
    means = {
        group.label: {
            benchmark: float(np.mean(values)) for benchmark, values in by_benchmark.items()
        }
        for group, by_benchmark in rho.items()
    }
    names, num_benchmarks = list(means), len(set(chain(*means.values())))
    drawn, axes = figure((4.4, 3.6))
    heat_map(axes, win_matrix(means), names, names, "{:.0f}")
    axes.invert_yaxis()
    axes.set_xticklabels(names, rotation=35, ha="right", rotation_mode="anchor")
    axes.set(xlabel="than this head", ylabel="better: this head")
    caption = (
        f"On how many of the {num_benchmarks} benchmarks the embeddings of the row's head "
        f"have a higher Spearman's ρ (mean over seeds) than those of the column's, {study.short}."
    )
    return Drawing("wins", "Pairwise wins", caption, drawn)


def _rho_table(
    study: Study,
    contents: Mapping[Facts, Sequence[Content]],
    rho: Mapping[Facts, Mapping[str, Sequence[float]]],
) -> Table:
    known: dict[str, Content] = {}  # by benchmark
    for content in chain(*(contents[group] for group in rho)):
        for name, values in content["word_similarity"].items():
            known.setdefault(name, values)
    prefix = study.prefix
    counts = published_section("word_pairs")
    rows = []
    for name, values in known.items():
        published = counts.get(name, {}) if prefix else {}
        rows.append(
            [
                word(name),
                whole(values.get("pairs")),
                whole(values.get("skipped")),
                whole(published.get(f"{prefix}_skipped")),
                *(
                    spread_cell(spread_of(by_name.get(name, [])), 3, len(group.runs))
                    for group, by_name in rho.items()
                ),
            ]
        )
    columns = [
        Column("benchmark", is_text=True),
        Column("pairs"),
        Column("skipped"),
        Column("skipped, published", is_optional=True),
        *(Column(group.label, ("mean", "sd")) for group in rho),
    ]
    caption = (
        "Spearman's ρ between human judgement and the cosine of embeddings trained on "
        f"{study.short}: mean ± one standard deviation over all seeds, except in cells "
        "that name another number. Pairs with a word outside the vocabulary are skipped."
    )
    return Table("word_similarity", "Word similarity", caption, columns, rows)


def _published_table(study: Study, groups: Sequence[Facts]) -> list[Table]:
    section = published_section("word_similarity")
    published = section.get(study.prefix or "", {})
    shown = [
        group
        for group in groups
        if group.published is not None and group.head.family in section["heads"]
    ]
    if not published or not shown:
        return []
    at = [section["heads"].index(group.head.family) for group in shown]
    rows = [[word(name), *(number(values[i], 3) for i in at)] for name, values in published.items()]
    columns = [Column("benchmark", is_text=True), *(Column(group.label) for group in shown)]
    caption = f"Spearman's ρ as published: {section['source']}."
    title = "Word similarity, published"
    notes = study.not_as_published(shown)
    return [Table("word_similarity_published", title, caption, columns, rows, notes)]


def _components(study: Study, contents: Mapping[Facts, Sequence[Content]]) -> Table:
    rows = []
    for group, measured in contents.items():
        counts = [
            spread_of([c["principal_components"].get(share, math.nan) for c in measured])
            for share in _SHARES
        ]
        cells = [spread_cell(count, 1) for count in counts]
        sizes = whole(len(measured)), whole(measured[0].get("emb_dim"))
        rows.append([word(group.label), *sizes, *cells])
    columns = [
        Column("head", is_text=True),
        Column("seeds"),
        Column("embedding size"),
        *(Column(f"components for {float(s):.0%}", ("mean", "sd")) for s in _SHARES),
    ]
    caption = (
        f"Number of principal components that hold a share of the variance of the embeddings, "
        f"{study.short}: mean ± one standard deviation over the seeds that were measured."
    )
    return Table("components", "Principal components", caption, columns, rows)

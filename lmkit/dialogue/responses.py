"""How models of dialogue respond: perplexity, responses by beam search, and their scores.

Yang et al. 2018, section 3.1 and table 3; Zhao et al. 2017, section 5.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from lmkit import experiment
from lmkit.analyses.analysis import Analysis, Content
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Group, spread_of
from lmkit.comparison.published import published_dialogue
from lmkit.comparison.run_files import Files
from lmkit.comparison.significance import compare, holm
from lmkit.dialogue.scores import MAX_ORDER, SMOOTHINGS, bleu_scores, distinct, nltk_version
from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.presentation.section import Block, Passage, Section
from lmkit.presentation.tables import Column, Heading, Row, Table, number, p_value, word
from lmkit.runs.analysis_files import read_analysis, text_of
from lmkit.runs.folder import RunFolder

# name in analysis/dialogue.json, title, decimals
MEASURES = (
    ("perplexity", "perplexity", 2),
    *(
        (f"bleu{n}_{kind}", f"BLEU-{n} {kind}", 4)
        for n in range(1, MAX_ORDER + 1)
        for kind in ("precision", "recall")
    ),
    ("distinct1", "distinct-1", 4),
    ("distinct2", "distinct-2", 4),
    ("response_words", "words a response", 2),
)
_SHOWN = 5  # contexts in the report
_PUBLISHED_CORPUS = "switchboard"
_NOTE = (
    "± is the standard deviation over seeds, (n) their number. p: Student's test against "
    "{baseline}, corrected for the experiments compared with it (Holm). BLEU: precision is the "
    "mean, recall the maximum over {n_best} responses, to {pairs:,} of {all_pairs:,} contexts, "
    "smoothed as smoothing={smoothing}."
)

Key = TypeVar("Key", bound=Hashable)  # an experiment, or a group of runs


@dataclass(frozen=True)
class _Answer:
    context: list[str]
    reference: list[str]
    responses: list[list[str]]  # the best first

    def __post_init__(self) -> None:
        if not self.responses:
            raise ValueError("responses must not be empty")


class _Options(NamedTuple):
    n_best: int


_Stored = make_dataclass(
    "_Stored",
    [
        ("answered_pairs", int),
        ("options", _Options),
        ("responses", list[_Answer]),
        *((measure, float | None) for measure, _, _ in MEASURES),
    ],
)


class Responses(Analysis):
    """What models answer to contexts, and how good that is.

    A run that was measured with the same options is not measured again.

    Args:
        split: train, valid or test.
        pairs: how many contexts of the split are answered, evenly spaced; None or "all": all.
            Perplexity is of all of them.
        beam: hypotheses that the search keeps.
        max_words: of a response.
        n_best: responses to each context.
        samples: contexts, evenly spaced, whose responses are kept.
        shown: how many of these are printed.
        baseline: experiment that the others are compared with; None: the one with plain softmax.
        smoothing: of BLEU, "exp" or "program" (`dialogue.scores`).
    """

    name, form = "dialogue", _Stored
    order = 110
    takes_dialogue = True

    def __init__(
        self,
        *,
        split: str,
        pairs: int | str | None,
        beam: int,
        max_words: int,
        n_best: int,
        samples: int,
        shown: int,
        baseline: str | None,
        smoothing: str = "exp",
    ) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        if pairs not in (None, "all"):
            require_count("pairs", pairs)
        counts = {"beam": beam, "max_words": max_words, "n_best": n_best, "samples": samples}
        for option, count in counts.items():
            require_count(option, count)
        require_count("shown", shown, 0)
        require_choice("smoothing", smoothing, SMOOTHINGS)
        if n_best > beam:
            raise UserError(f"n_best must be at most beam, which is {beam}, but is {n_best}")
        self.split, self.beam, self.max_words, self.n_best = split, beam, max_words, n_best
        self.pairs = pairs if isinstance(pairs, int) else None
        self.samples, self.shown, self.baseline = samples, shown, baseline
        self.smoothing = smoothing

    def stored(self, folder: RunFolder) -> Content | None:
        version = self.schema_version
        try:
            content = read_analysis(folder, self.name, kind=self.name, schema_version=version)
        except UserError:  # damaged
            return None
        if content is None:
            return None
        wanted = self._made_of(folder)
        return content if {key: content.get(key) for key in wanted} == wanted else None

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        # brings torch, which the report does without
        from lmkit.dialogue.beam import BeamSearch, answer, evenly

        search = BeamSearch(self.beam, self.max_words, self.n_best)
        answered = answer(run, self.split, self.pairs, search)
        answers = answered.answers
        first = [each.responses[0] for each in answers]
        references = [a.reference for a in answers]
        bleu = bleu_scores([a.responses for a in answers], references, self.smoothing)
        kept = evenly(len(answers), min(self.samples, len(answers)))
        return {
            **self._made_of(run.folder),
            "corpus": run.config["data"]["name"],
            "answered_pairs": len(answers),
            "all_pairs": answered.num_pairs,
            "perplexity": answered.perplexity,
            "nll": answered.nll,
            "tokens": answered.num_targets,
            **{f"bleu{n}_precision": score for n, score in enumerate(bleu.precision, 1)},
            **{f"bleu{n}_recall": score for n, score in enumerate(bleu.recall, 1)},
            "distinct1": distinct(first, 1),
            "distinct2": distinct(first, 2),
            "response_words": float(np.mean([len(response) for response in first])),
            "reference_words": float(np.mean([len(each.reference) for each in answers])),
            "responses": [answers[i]._asdict() for i in kept],
        }

    def _made_of(self, folder: RunFolder) -> Content:
        """What decides the responses of a run, and what the run is called."""
        result = folder.read_result()
        return {
            "experiment": result.experiment,
            "head": folder.read_names().family,
            # a run that was extended has another best epoch, and other responses
            "best_epoch": result.metrics["best_epoch"],
            "smoothing": self.smoothing,
            "nltk": nltk_version(self.smoothing),  # its scores are not those of every version
            "options": {
                "split": self.split,
                "pairs": self.pairs,
                "beam": self.beam,
                "max_words": self.max_words,
                "n_best": self.n_best,
                "samples": self.samples,
            },
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        """A column for each experiment, with its p-values, and one for each published head.

        Raises: UserError when there is no experiment called as the option `baseline` says.
        """
        experiments = _by_experiment(contents.values())
        baseline = self._baseline(experiments)
        others = [name for name in experiments if name != baseline]
        published = published_dialogue().heads if _is_published(contents.values()) else {}
        columns = [Column("", is_text=True)]
        for name in (baseline, *others):
            columns.append(Column(f"{name} ({len(experiments[name])})", MEAN_SD))
            columns += [Column("p")] if name != baseline else []
        columns += [Column(f"published {head}") for head in published]
        rows = []
        for measure, title, decimals in MEASURES:
            values = {name: _values(runs, measure) for name, runs in experiments.items()}
            row = [word(title), spread_cell(spread_of(values[baseline]), decimals)]
            for name, (_, p) in _tested(values, dict.fromkeys(others, baseline)).items():
                row += [spread_cell(spread_of(values[name]), decimals), p_value(p)]
            row += [number(facts.get(measure), 3) for facts in published.values()]
            rows.append(row)
        return [Table("dialogue", "responses to contexts", "", columns, rows)]

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        """What has to be said about the table, and some responses."""
        first = next(iter(contents.values()))
        note = _NOTE.format(
            baseline=self._baseline(_by_experiment(contents.values())),
            n_best=self.n_best,
            pairs=first["answered_pairs"],
            all_pairs=first["all_pairs"],
            smoothing=_smoothing(contents.values()),
        )
        if _is_published(contents.values()):
            note = f"{note} {published_dialogue().note}"
        return [note, *self._side_by_side(_by_experiment(contents.values()))]

    def _side_by_side(self, experiments: Mapping[str, Sequence[Content]]) -> list[str]:
        """Contexts, what was said, and the best response of each experiment's first run."""
        sides = {name: runs[0] for name, runs in experiments.items()}
        width = max(map(len, sides))
        return [
            "\n".join(["", *context, *(f"  {who:{width}}  {text}" for who, text in said)])
            for context, said in _same_contexts(sides, self.shown, "(said)")
        ]

    def _baseline(self, experiments: Mapping[str, Sequence[Content]]) -> str:
        if self.baseline is None:
            plain = [name for name, runs in experiments.items() if runs[0]["head"] == "softmax"]
            return (plain or list(experiments))[0]
        if self.baseline not in experiments:
            there = ", ".join(experiments)
            raise UserError(f"baseline={self.baseline} has no run here; there are {there}")
        return self.baseline

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        """The scores and some responses; nothing where no run was asked for responses."""
        answers = {
            group: contents for group in study.groups if (contents := _contents(group, files))
        }
        if not answers:
            return []
        left = [group.label for group in study.groups if group not in answers]
        how = "lmkit dialogue run=FOLDER"
        missing = [f"no dialogue.json: {', '.join(left)}: {how}"] if left else []
        intro = (
            "Responses found by beam search. BLEU is smoothed and of single sentences; precision "
            "is the mean over the responses to a context, recall their maximum."
        )
        blocks: list[Block] = [_scores_table(study, answers), *_passages(answers)]
        return [Section("dialogue", "Responses", intro, blocks, missing)]


def _contents(group: Group, files: Files) -> list[Content]:
    return [*files.of_runs(group.runs, Responses).values()]


def _by_experiment(contents: Iterable[Content]) -> dict[str, list[Content]]:
    experiments: dict[str, list[Content]] = {}
    for content in contents:
        experiments.setdefault(content["experiment"], []).append(content)
    return experiments


def _smoothing(contents: Iterable[Content]) -> str:
    """`program (nltk 3.9.1)`; of several, all of them: their scores do not compare."""
    kinds = dict.fromkeys((c.get("smoothing", "exp"), c.get("nltk")) for c in contents)
    texts = [kind + (f" (nltk {nltk})" if nltk else "") for kind, nltk in kinds]
    return texts[0] if len(texts) == 1 else f"{' or '.join(texts)}, which do not compare"


def _is_published(contents: Iterable[Content]) -> bool:
    return any(
        content["corpus"] == _PUBLISHED_CORPUS and text_of(content).is_own for content in contents
    )


def _values(contents: Iterable[Content], measure: str) -> list[float]:
    return [float(content[measure]) for content in contents if content[measure] is not None]


def _tested(
    values: Mapping[Key, Sequence[float]], baselines: Mapping[Key, Key | None]
) -> dict[Key, tuple[float | None, float | None]]:
    """Each of `baselines` compared with its baseline, where both have values: the difference, and
    Student's p, corrected over all that are tested together (Holm).
    """
    compared = {
        key: compare(values[key], values[baseline])
        for key, baseline in baselines.items()
        if baseline is not None and values[key] and values.get(baseline)
    }
    p_values = {key: c.p_student for key, c in compared.items() if c.p_student is not None}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {
        key: (compared[key].difference if key in compared else None, corrected.get(key))
        for key in baselines
    }


def _same_contexts(
    sides: Mapping[str, Content], number: int, reference: str
) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Contexts that the first side has kept, evenly spaced, since neighbours are much alike.

    Args:
        reference: what the text that was said is called.

    Yields: the context, and what each side says that has answered it, after what was said.
    """
    kept = next(iter(sides.values()))["responses"]
    shown = min(number, len(kept))
    for chosen in (kept[i * len(kept) // shown] for i in range(shown)):
        said = [(reference, " ".join(chosen["reference"]))]
        for name, content in sides.items():
            same = [r for r in content["responses"] if r["context"] == chosen["context"]]
            if same:
                said.append((name, " ".join(same[0]["responses"][0])))
        yield chosen["context"], said


def _scores_table(study: Study, answers: Mapping[Facts, Sequence[Content]]) -> Table:
    has_published = study.corpus.name == _PUBLISHED_CORPUS
    published = published_dialogue()
    heads = published.heads if has_published else {}
    baselines = {group: group.against and group.against.baseline for group in answers}
    rows: list[Row] = []
    for measure, title, decimals in MEASURES:
        values = {group: _values(contents, measure) for group, contents in answers.items()}
        for group, (difference, p) in _tested(values, baselines).items():
            ours, theirs = values[group], heads.get(group.head.family, {}).get(measure)
            cells = [spread_cell(spread_of(ours), decimals), number(difference, decimals)]
            rows.append([title, group.label, len(ours), *cells, p_value(p), number(theirs, 3)])
    first = next(iter(answers.values()))[0]
    smoothing = _smoothing([content for contents in answers.values() for content in contents])
    caption = (
        f"Responses on {study.title}: {first['options']['n_best']} to each of "
        f"{first['answered_pairs']:,} contexts, BLEU with smoothing={smoothing}. "
        "Holm's correction is over the heads of a measure."
    )
    columns: list[Heading] = ["measure", "head", "seeds", Column("ours", MEAN_SD)]
    columns += ["difference", "p, Student, Holm", Column("published", is_optional=True)]
    notes = [published.note] if has_published else []
    return Table("dialogue", "Scores of responses", caption, columns, rows, notes)


def _passages(answers: Mapping[Facts, Sequence[Content]]) -> list[Passage]:
    """The same contexts for one run of each head."""
    sides = {group.label: contents[0] for group, contents in answers.items()}
    title = "Context, what was said, best responses"
    return [
        Passage(title, "\n".join([*context, *(f"{who}: {text}" for who, text in said)]))
        for context, said in _same_contexts(sides, _SHOWN, "said")
    ]

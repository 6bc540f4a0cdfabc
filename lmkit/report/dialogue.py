"""Responses of dialogue models: scores over seeds, and what each head says (Yang et al. 2018)."""

from __future__ import annotations

from lmkit.comparison.cells import MEAN_SD
from lmkit.comparison.groups import Group, Study, spread_of
from lmkit.comparison.run_files import Files
from lmkit.comparison.significance import compare, holm
from lmkit.dialogue.dialogue_report import MEASURES
from lmkit.presentation.published import published_dialogue
from lmkit.presentation.section import Passage, Section
from lmkit.presentation.tables import Cell, Column, Table, number, p_value, spread, whole, word

_SHOWN = 5  # contexts
_COLUMNS = (
    Column("measure", is_text=True),
    Column("head", is_text=True),
    Column("seeds"),
    Column("ours", MEAN_SD),
    Column("difference"),
    Column("p, Student, Holm"),
    Column("published", is_optional=True),
)

Answers = dict[Group, list[dict]]  # dialogue.json of each run that has one


def dialogue(study: Study, files: Files) -> list[Section]:
    """The scores and some responses; nothing where no run was asked for responses."""
    answers: Answers = {}
    for group in study.groups:
        found = [files.analysis(run, "dialogue") for run in group.runs]
        if any(found):
            answers[group] = [content for content in found if content is not None]
    if not answers:
        return []
    left = [group.label for group in study.groups if group not in answers]
    how = "lmkit respond run=FOLDER"
    missing = [f"no dialogue.json: {', '.join(left)}: {how}"] if left else []
    intro = (
        "Responses found by beam search. BLEU is smoothed and of single sentences; precision is "
        "the mean over the responses to a context, recall their maximum."
    )
    blocks = [_table(study, answers), *_passages(answers)]
    return [Section("dialogue", "Responses", intro, blocks, missing)]


def _table(study: Study, answers: Answers) -> Table:
    has_published = study.corpus.name == "switchboard"
    heads = published_dialogue().heads if has_published else {}
    rows: list[list[Cell]] = []
    for measure, title, decimals in MEASURES:
        values = {
            group: [float(content[measure]) for content in found]
            for group, found in answers.items()
        }
        baselines = {group: study.baseline_of(group) for group in answers}
        held = {
            group: compare(values[group], values[baseline])
            for group, baseline in baselines.items()
            if baseline in values
        }
        tested = {g: c.p_student for g, c in held.items() if c.p_student is not None}
        corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
        for group in answers:
            found = spread_of(values[group])
            difference = held[group].difference if group in held else None
            rows.append(
                [
                    word(title),
                    word(group.label),
                    whole(found.n),
                    spread(found.mean, found.sd, decimals),
                    number(difference, decimals),
                    p_value(corrected.get(group)),
                    number(heads.get(group.head.family, {}).get(measure), 3),
                ]
            )
    first = next(iter(answers.values()))[0]
    caption = (
        f"Responses on {study.title}: {first['options']['n_best']} to each of "
        f"{first['answered_pairs']:,} contexts. Holm's correction is over the heads of a measure."
    )
    notes = [published_dialogue().note] if has_published else []
    return Table("dialogue", "Scores of responses", caption, _COLUMNS, rows, notes)


def _passages(answers: Answers) -> list[Passage]:
    """The same contexts for one run of each head."""
    sides = {group.label: found[0]["responses"] for group, found in answers.items()}
    kept = next(iter(sides.values()))
    shown = min(_SHOWN, len(kept))
    passages = []
    for answered in (kept[i * len(kept) // shown] for i in range(shown)):
        lines = [*answered["context"], f"said: {' '.join(answered['reference'])}"]
        for label, responses in sides.items():
            same = [r for r in responses if r["context"] == answered["context"]]
            lines += [f"{label}: {' '.join(r['responses'][0])}" for r in same[:1]]
        passages.append(Passage("Context, what was said, best responses", "\n".join(lines)))
    return passages

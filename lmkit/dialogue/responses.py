"""How models of dialogue respond: perplexity, responses by beam search, and their scores.

Yang et al. 2018, section 3.1 and table 3; Zhao et al. 2017, section 5.2.
"""

from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from pydantic import Field

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.data.text_files import SPLITS
from lmkit.dialogue.scores import SMOOTHINGS, bleu_scores, distinct
from lmkit.errors.user_error import UserError, require_choice, require_count, require_count_or_all


def evenly(total: int, number: int) -> list[int]:
    """`number` of `total` indices, evenly spaced, in order."""
    return [i * total // number for i in range(number)]


class Replies(Record):
    """The responses to one context."""

    context: list[str]  # one a turn, with "> " before those of the one who responds
    reference: list[str]
    responses: list[list[str]]  # the best first


class ResponseScores(Record):
    """BLEU's precision is the mean over the responses to a context, its recall their maximum."""

    split: str = Field(title="split")
    answered_pairs: int = Field(title="answered pairs")
    all_pairs: int
    beam: int = Field(title="beam")
    n_best: int = Field(title="responses to each")
    max_words: int
    smoothing: str = Field(title="smoothing")
    nltk: str | None  # its version, where it scores: versions differ
    perplexity: float = Field(title="perplexity")  # of the whole split
    nll: float
    tokens: int
    bleu1_precision: float = Field(title="BLEU-1 precision")
    bleu1_recall: float = Field(title="recall")
    bleu2_precision: float = Field(title="BLEU-2 precision")
    bleu2_recall: float = Field(title="recall")
    bleu3_precision: float = Field(title="BLEU-3 precision")
    bleu3_recall: float = Field(title="recall")
    bleu4_precision: float = Field(title="BLEU-4 precision")
    bleu4_recall: float = Field(title="recall")
    distinct1: float | None = Field(title="distinct-1")
    distinct2: float | None = Field(title="distinct-2")
    response_words: float = Field(title="words a response")
    reference_words: float
    responses: list[Replies] = Field(repr=False)


@dataclass(kw_only=True, eq=False)
class Responses(Analysis):
    """What models answer to contexts, and how good that is."""

    name, record, title, version = "dialogue", ResponseScores, "Responses", 2

    split: str  # train, valid or test
    # how many contexts of the split are answered, evenly spaced; None or "all": all. Perplexity is
    # of all of them
    pairs: int | str | None
    beam: int  # hypotheses that the search keeps
    max_words: int  # of a response
    n_best: int  # responses to each context
    samples: int  # contexts, evenly spaced, whose responses are kept
    shown: int  # how many of these are printed
    smoothing: str  # of BLEU, "exp" or "program" (`dialogue.scores`)

    def __post_init__(self) -> None:
        require_choice("split", self.split, SPLITS)
        require_count_or_all("pairs", self.pairs)
        for option in ("beam", "max_words", "n_best", "samples"):
            require_count(option, getattr(self, option))
        require_count("shown", self.shown, 0)
        require_choice("smoothing", self.smoothing, SMOOTHINGS)
        if self.n_best > self.beam:
            raise UserError(
                f"n_best must be at most beam, which is {self.beam}, but is {self.n_best}"
            )

    def measure(self, subject: Subject) -> Recorded:
        # brings torch, which the report does without
        from lmkit.dialogue.beam import BeamSearch, answer

        search = BeamSearch(self.beam, self.max_words, self.n_best)
        num_pairs = self.pairs if isinstance(self.pairs, int) else None
        measured, all_pairs, answers = answer(subject.loaded_run, self.split, num_pairs, search)
        first = [each.responses[0] for each in answers]
        references = [a.reference for a in answers]
        bleu = bleu_scores([a.responses for a in answers], references, self.smoothing)
        kept = evenly(len(answers), min(self.samples, len(answers)))
        return Recorded(
            ResponseScores(
                split=self.split,
                answered_pairs=len(answers),
                all_pairs=all_pairs,
                beam=self.beam,
                n_best=self.n_best,
                max_words=self.max_words,
                smoothing=self.smoothing,
                nltk=version("nltk") if self.smoothing == "program" else None,
                perplexity=measured.perplexity,
                nll=measured.nll,
                tokens=measured.num_tokens,
                distinct1=distinct(first, 1),
                distinct2=distinct(first, 2),
                response_words=float(np.mean([len(response) for response in first])),
                reference_words=float(np.mean([len(each.reference) for each in answers])),
                responses=[answers[i] for i in kept],
                **bleu,
            )
        )

    def lines(self, record: ResponseScores) -> list[str]:
        """Some contexts, evenly spaced, what was said, and the best response."""
        kept = record.responses
        lines: list[str] = []
        for each in (kept[i] for i in evenly(len(kept), min(self.shown, len(kept)))):
            said = f"  said:     {' '.join(each.reference)}"
            lines += ["", *each.context, said, f"  response: {' '.join(each.responses[0])}"]
        return lines

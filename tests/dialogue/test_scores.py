import math
from types import SimpleNamespace

import numpy as np
import pytest

from lmkit.dialogue.responses import Replies, Responses
from lmkit.dialogue.scores import bleu_scores, distinct, nltk_bleu, sacre_bleu

REFERENCE = ["it", "rains", "in", "spain"]


def matches(response: list[str], reference: list[str], n: int) -> tuple[int, int]:
    """The n-grams of a response that match those of the reference, and all of them."""
    grams, there = (
        [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        for words in (response, reference)
    )
    return sum(min(grams.count(gram), there.count(gram)) for gram in set(grams)), len(grams)


def plain_bleu(response: list[str], reference: list[str], order: int) -> float:
    """BLEU-`order` (Papineni et al. 2002), the first count of none taken as 1/2, then 1/4."""
    logs, halvings = [], 0
    for n in range(1, min(order, len(response)) + 1):
        matching, number = matches(response, reference, n)
        if n == 1 and matching == 0:
            return 0.0
        halvings += matching == 0
        logs.append(math.log((matching or 0.5**halvings) / number))
    brevity = min(0.0, 1 - len(reference) / len(response))
    return math.exp(brevity + sum(logs) / len(logs))


@pytest.mark.parametrize(
    "response",
    ["it rains in spain", "it rains", "it", "rains it", "it it it it", "in spain it rains a lot"],
)
def test_bleu_is_its_formula(response):
    found = sacre_bleu(response.split(), REFERENCE)
    assert found == pytest.approx([plain_bleu(response.split(), REFERENCE, n) for n in range(1, 5)])


def test_the_reference_has_one_and_other_words_none():
    for reference in (REFERENCE, ["yes"], ["oh", "yes"]):
        assert sacre_bleu(reference, reference) == pytest.approx([1, 1, 1, 1])
    assert sacre_bleu(["no", "never"], REFERENCE).tolist() == [0, 0, 0, 0]
    assert sacre_bleu([], REFERENCE).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("response", "expected"),  # by the formula of the method
    [
        ("it rains in spain", [1.0, 1.01835, 1.013978, 1.01063]),
        ("it rains on spain", [0.833333, 0.634242, 0.418456, 0.292737]),
        ("spain it in it", [0.833333, 0.503181, 0.311422, 0.205532]),
    ],
)
def test_the_programs_bleu_is_nltks_method_7(response, expected):
    assert nltk_bleu(response.split(), REFERENCE) == pytest.approx(expected, rel=1e-5)


def test_a_response_that_nltk_cannot_score_counts_nothing(monkeypatch):
    assert nltk_bleu([], REFERENCE).tolist() == [0, 0, 0, 0]

    def fails(*_: object, **__: object) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr("nltk.translate.bleu_score.sentence_bleu", fails)
    assert nltk_bleu(REFERENCE, REFERENCE).tolist() == [0, 0, 0, 0]


def test_the_smoothing_is_chosen():
    responses, references = [[["it", "rains", "on", "spain"]]], [REFERENCE]
    program = bleu_scores(responses, references, "program")
    assert [program[f"bleu{n}_precision"] for n in (1, 2, 3, 4)] == nltk_bleu(
        responses[0][0], REFERENCE
    ).tolist()
    assert program != bleu_scores(responses, references)


def test_precision_is_the_mean_and_recall_the_maximum():
    responses = [[["it", "rains"], REFERENCE], [["yes"], ["no", "no"]]]
    found = bleu_scores(responses, [REFERENCE, ["yes"]])
    first = sacre_bleu(["it", "rains"], REFERENCE)
    precision = np.mean([(first + 1) / 2, [0.5] * 4], 0)
    assert found == pytest.approx(
        {f"bleu{n}_precision": score for n, score in enumerate(precision, 1)}
        | {f"bleu{n}_recall": 1 for n in (1, 2, 3, 4)}
    )


def test_distinct_counts_across_responses():
    responses = [["a", "b", "a"], ["a", "b"], ["c"]]
    assert distinct(responses, 1) == 3 / 6
    assert distinct(responses, 2) == 2 / 6  # a b, b a
    assert distinct([["a"]], 2) == 0
    assert distinct([[]], 1) is None


def test_the_best_responses_decide_what_is_distinct_and_samples_are_evenly_spaced(monkeypatch):
    answers = [
        Replies(context=[str(i)], reference=["a"], responses=[["a", "a", "b", "b"], [str(i)]])
        for i in range(6)
    ]
    measured = SimpleNamespace(perplexity=2.0, nll=0.7, num_tokens=9)
    monkeypatch.setattr("lmkit.dialogue.beam.answer", lambda *_: (measured, 8, answers))
    sizes = {"pairs": 6, "beam": 2, "n_best": 2, "max_words": 4, "samples": 3, "shown": 1}
    responses = Responses(split="test", smoothing="exp", **sizes)
    found = responses.measure(SimpleNamespace(loaded_run=None)).record
    assert (found.distinct1, found.distinct2) == (2 / 24, 3 / 24)
    assert found.response_words == 4
    assert [each.context for each in found.responses] == [["0"], ["2"], ["4"]]

"""At which contexts predictions are looked at."""

from types import SimpleNamespace

import numpy as np
import pytest

from lmkit.analyses.predictions import (
    Context,
    Predictions,
    at_positions,
    by_text,
    largest_margins,
    last_words,
    published_contexts,
    random_positions,
)
from lmkit.data.corpus import TextCorpus
from lmkit.data.tokenizer import Words
from lmkit.errors.user_error import UserError

VOCABULARY = ["a", "b", "c"]
TOKENS = np.array([0, 1, 2, 0, 1, 1, 2, 0, 1])


@pytest.mark.realdata
def test_all_published_contexts_are_in_ptbs_test_split(data_root):
    corpus = TextCorpus("penn", str(data_root), "penn").load()
    found = published_contexts(corpus.test, corpus.vocabulary, "test")
    assert len({context.position for context in found}) == len(found) == 18
    (tons,) = (context for context in found if context.position == 2700)
    assert corpus.vocabulary[corpus.test[2700]] == "tons"
    assert last_words(tons, corpus.test, Words(corpus.vocabulary)).endswith(" N")
    # another text, or another split, has none of them
    assert published_contexts(corpus.test[1:], corpus.vocabulary, "test") == []
    assert published_contexts(corpus.test[:3000], corpus.vocabulary, "test") == []
    assert published_contexts(corpus.valid, corpus.vocabulary, "valid") == []
    assert published_contexts(TOKENS, VOCABULARY, "test") == []


def test_positions_have_a_word_before_them():
    assert at_positions(TOKENS, [8, 1]) == [
        Context("position 8", "position", 8),
        Context("position 1", "position", 1),
    ]
    for wrong in (0, 9, -1, "3", True):
        with pytest.raises(UserError, match="positions"):
            at_positions(TOKENS, [wrong])


def test_a_text_is_found_where_it_first_occurs():
    assert by_text(TOKENS, [0, 1], "a b") == Context("text: a b", "text", 2)
    assert by_text(TOKENS, [1, 1], "b b").position == 6
    # absent, only at the end where no word follows, longer than the split
    for words in ([2, 2], [2, 0, 1, 0], [1, 2, 0, 1, 0], [0] * 30):
        context = by_text(TOKENS, words, "x")
        assert (context.position, context.text) == (None, tuple(words))
    assert by_text(TOKENS[:5], [2, 0, 1], "c a b").position is None


@pytest.mark.parametrize(
    ("within", "begins", "position"),
    [
        ([1], [0], 1),
        ([1, 1, 2], [0, 1, 1], 6),
        ([1], [2, 2], 2),
        ([2], [1], 3),  # that 1 is within a word
    ],
)
def test_a_text_is_found_at_the_beginning_of_a_line_too(within, begins, position):
    """Whose tokens may be others there. Lines end in 2."""
    forms = {" x": within, "x": begins}
    tokenizer = SimpleNamespace(
        within_line=" {}".format,
        ids=lambda _, text: forms[text],
        text=lambda tokens: "." + "\n" * tokens.count(2),  # a token may end a sentence and its line
    )
    reader = SimpleNamespace(tokens=TOKENS, vocabulary=VOCABULARY, tokenizer=tokenizer)
    asked = SimpleNamespace(published=False, positions=[], texts=["x"], random=0, seed=1)
    (context,) = Predictions._contexts(asked, reader)
    assert context.position == position


def test_random_positions_are_different_and_those_of_the_seed():
    found = random_positions(TOKENS, 8, 1)
    assert found == list(range(1, 9))
    tokens = np.zeros(10_000, dtype=int)
    assert random_positions(tokens, 50, 1) == random_positions(tokens, 50, 1)
    assert random_positions(tokens, 50, 1) != random_positions(tokens, 50, 2)
    assert len(set(random_positions(tokens, 50, 1))) == 50
    assert random_positions(TOKENS, 9, 1) == found  # all there are


def test_largest_margins_both_ways():
    better, worse = largest_margins(np.array([3.0, -4, 0, 2]), 2)
    assert better == [1, 4]
    assert worse == [2]  # at 3 it is as good


def test_last_words_before_the_predicted_one():
    assert last_words(Context("", "position", 3), TOKENS, Words(VOCABULARY)) == "a b c"
    assert last_words(Context("", "text", None, (2, 2)), TOKENS, Words(VOCABULARY)) == "c c"
    long = np.arange(40) % 3
    assert len(last_words(Context("", "position", 30), long, Words(VOCABULARY)).split()) == 12

import hashlib
import inspect
from functools import cache

import numpy as np
import pytest
import yaml

from lmkit.cli.entry import CONFIGS
from lmkit.data.toy import ToyLanguage, zipfian_frequencies
from lmkit.errors.user_error import UserError

UNREAD = {"valid_tokens": 2, "test_tokens": 2}  # of a language whose training text is read alone
DEFAULTS = yaml.safe_load((CONFIGS / "data" / "toy.yaml").read_text())
del DEFAULTS["_target_"]


def toy(**changed: object) -> ToyLanguage:
    """The default language, with some of its parameters changed."""
    return ToyLanguage(**DEFAULTS | changed)


@cache
def default() -> ToyLanguage:
    return toy(train_tokens=40_000)


def small(**changed: object) -> ToyLanguage:
    """A language quick to generate."""
    sizes = {"num_words": 30, "rank": 6, "train_tokens": 3000}
    return toy(**{**sizes, "valid_tokens": 400, "test_tokens": 300, **changed})


def numeric_rank(language: ToyLanguage, contexts: np.ndarray) -> tuple[int, float]:
    """Number of log P's singular values above float64's noise, and last of them over first."""
    singular = np.linalg.svd(language.log_probs(contexts), compute_uv=False)
    rank = int((singular > 1e-12 * singular[0]).sum())
    return rank, singular[rank - 1] / singular[0]


def test_splits_have_their_sizes_and_words():
    language = default()
    corpus = language.load()
    sizes = (len(corpus.train), len(corpus.valid), len(corpus.test))
    assert sizes == (40_000, 20_000, 20_000)
    assert len(corpus.vocabulary) == len(set(corpus.vocabulary)) == 200
    assert corpus.vocabulary[0] == "<eos>"
    assert corpus.train.dtype == np.int64
    assert set(corpus.train.tolist()) == set(range(200)), "a word never comes"


def test_log_p_has_exactly_the_chosen_rank():
    language = default()
    rank, last = numeric_rank(language, language.contexts("test"))
    assert rank == language.rank == 16
    # Large enough for the float32 tolerance of the papers' rank to find it, too.
    assert last > 1e-3


@pytest.mark.parametrize("rank", [3, 7, 29, 30])
def test_any_rank_up_to_the_vocabulary_can_be_chosen(rank):
    language = small(rank=rank)
    assert numeric_rank(language, language.contexts("train"))[0] == rank


def test_sentences_are_independent():
    language = small()
    after_eos = language.log_probs(np.array([[word, 0] for word in range(30)]))
    assert (after_eos == after_eos[0]).all()
    after_word = language.log_probs(np.array([[word, 1] for word in range(30)]))
    assert abs(after_word - after_word[0]).max() > 0.5, "the word before the last tells nothing"


def test_texts_follow_the_distribution():
    language = small(num_words=12, rank=5, train_tokens=300_000)
    contexts, targets = language.contexts("train"), language.load().train[1:]
    codes = contexts[:, 0] * 12 + contexts[:, 1]
    statistic = cells = 0.0
    for code in np.flatnonzero(np.bincount(codes, minlength=144) >= 500):
        drawn = targets[codes == code]
        expected = np.exp(language.log_probs(np.array([[code // 12, code % 12]])))[0] * len(drawn)
        common = expected > 5
        counts = np.bincount(drawn, minlength=12)
        statistic += ((counts - expected) ** 2 / expected)[common].sum()
        cells += common.sum()
    assert cells > 500
    # Chi squared, of a mean near the number of cells and a deviation near sqrt(2 cells).
    assert statistic < cells + 4 * np.sqrt(2 * cells)


def test_mean_log_prob_of_the_text_is_the_floor():
    language = small(valid_tokens=50)
    text = language.load().valid.tolist()
    total = 0.0
    for position in range(1, 50):
        before = text[position - 2] if position > 1 else 0
        row = language.log_probs(np.array([[before, text[position - 1]]]))[0]
        total -= row[text[position]]
    assert language.floor_and_entropy("valid")[0] == pytest.approx(total / 49, rel=1e-12)


def test_floor_and_entropy_agree_within_sampling_error():
    language, split = default(), "test"
    log_probs = language.log_probs(language.contexts(split))
    mean_square = (np.exp(log_probs) * log_probs**2).sum(axis=1)
    variance = mean_square - (np.exp(log_probs) * log_probs).sum(axis=1) ** 2
    count = language.num_tokens[split] - 1
    error = np.sqrt(variance.mean() / count)
    floor, entropy = language.floor_and_entropy(split)
    assert abs(floor - entropy) < 4 * error


def test_words_are_zipfian():
    exponent = 1.3
    text = toy(zipf_exponent=exponent, train_tokens=100_000, **UNREAD).load().train
    counts = np.bincount(text, minlength=200)[1:]
    ranks = np.arange(1, 200)
    slope, _ = np.polyfit(np.log(ranks + 2.7), np.log(np.sort(counts)[::-1]), 1)
    assert abs(slope + exponent) < 0.05
    expected = zipfian_frequencies(200, exponent, 1 / 15)[1:] * len(text)
    assert abs(np.log(counts[:50] / expected[:50])).max() < 0.2


def test_sentences_have_the_chosen_length():
    for length in (5, 40):
        text = small(sentence_length=length, train_tokens=100_000).load().train
        assert len(text) / (text == 0).sum() == pytest.approx(length, rel=0.1)


def test_a_seed_gives_one_language_and_its_texts():
    first, again, other = small().load(), small().load(), small(seed=2).load()
    for text, same, different in zip(first[1:], again[1:], other[1:], strict=True):
        assert np.array_equal(text, same)
        assert not np.array_equal(text, different)
    assert not np.array_equal(first.train[:300], first.test)


def test_texts_change_with_the_generator_version_only():
    # When this fails, the generator has changed: count GENERATOR_VERSION up, and put the new
    # hash here.
    text = small().load().train
    digest = hashlib.sha256(text.astype("<i8").tobytes()).hexdigest()
    assert digest[:16] == "72a3398f94fe6056"


def test_fingerprint_changes_with_whatever_changes_the_texts():
    base = small()
    changes = {
        **{"num_words": 31, "rank": 7, "context_strength": 1.5, "zipf_exponent": 1.1, "seed": 2},
        **{"sentence_length": 12, "train_tokens": 3001, "valid_tokens": 401, "test_tokens": 301},
    }
    names = {"name", "title", "short_title"}
    assert names | changes.keys() == inspect.signature(ToyLanguage).parameters.keys()
    seen = {base.fingerprint()}
    for option, value in changes.items():
        seen.add(small(**{option: value}).fingerprint())
    assert len(seen) == 1 + len(changes)
    assert small(name="other", context_strength=2).fingerprint() == base.fingerprint()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("num_words", 4), ("num_words", 30.5), ("rank", 2), ("rank", 31)),
        *(("context_strength", value) for value in (0, 4.1, float("nan"))),
        *(("zipf_exponent", -1), ("zipf_exponent", "steep")),
        *(("sentence_length", 1), ("sentence_length", 1e6), ("train_tokens", 1)),
        *(("valid_tokens", 0), ("test_tokens", -5), ("seed", -1)),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(UserError, match=rf"^data\.{option} must be"):
        small(**{option: value})

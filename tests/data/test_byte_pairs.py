from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from lmkit.data import subwords
from lmkit.data.corpus import TextCorpus
from lmkit.data.tokenizer import words_of
from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError

SIZE = 300
ODD = " Grüße,  don't <unk> 日本 \n\n\tx\x0cy z\u2028w 🙂\n = a-b = \n"


@pytest.fixture(scope="module")
def toy_text() -> str:
    """Some thousand words of the toy language, with a blank around each line as in PTB."""
    toy = ToyLanguage(
        name="toy", num_words=60, rank=5, context_strength=1.0, zipf_exponent=1.0, seed=1,
        sentence_length=9, train_tokens=4000, valid_tokens=2, test_tokens=2,
    ).load()  # fmt: skip
    words = [toy.vocabulary[index] for index in toy.train]
    lines = " ".join(words).split("<eos>")
    return "".join(f" {line.strip()} \n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path, toy_text: str) -> Path:
    write(tmp_path, train=toy_text, valid=ODD, test=toy_text[:500])
    return tmp_path


def write(folder: Path, **texts: str) -> None:
    for split, text in texts.items():
        (folder / f"{split}.txt").write_bytes(text.encode())


def corpus_in(folder: Path, size: int = SIZE, **options: object) -> TextCorpus:
    return TextCorpus("mine", str(folder), ".", tokenizer="bpe", vocab_size=size, **options)


def decoded(corpus: TextCorpus, split: str) -> str:
    splits = corpus.load()
    return corpus.tokenizer_by(splits.vocabulary).text(splits.tokens(split).tolist())


def test_texts_decode_to_what_they_were(folder, toy_text):
    corpus = corpus_in(folder)
    splits = corpus.load()
    assert len(splits.vocabulary) == len(set(splits.vocabulary)) == SIZE
    assert {splits.train.dtype, splits.valid.dtype} == {np.dtype(np.int64)}
    assert decoded(corpus, "train") == toy_text
    assert decoded(corpus, "valid") == ODD
    assert len(splits.train) < 3 * len(words_of(toy_text))


@pytest.mark.parametrize("text", ["a b\nc", "a b\r\nc\r\n", "a b\rc\r", "\ufeffa b\nc\n"])
def test_lines_end_as_in_words(folder, text):
    write(folder, test=text)
    assert decoded(corpus_in(folder), "test") == "a b\nc\n"


@pytest.mark.parametrize("text", [ODD, "a  b \n", "\n\n a\n", "x\x1cy \x85 z\n", " \n = T = \n"])
def test_words_are_those_of_a_word_level_model(folder, text):
    write(folder, test=text)
    plain = TextCorpus("mine", str(folder), ".").load()
    assert len(words_of(text)) == len(plain.test)
    assert "".join(words_of(text)) == text
    assert corpus_in(folder).text_size("test", corpus_in(folder).load().vocabulary)[1:3] == (
        len(plain.test) - 1,
        len(text.encode()),
    )


def test_vocabulary_and_tokens_are_the_librarys_own(folder, toy_text):
    own = tokenizers.Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    own.train([str(folder / "train.txt")], trainer)
    splits = corpus_in(folder).load()
    assert {token: i for i, token in enumerate(splits.vocabulary)} == own.get_vocab()
    stored = json.loads(corpus_in(folder).tokenizer_json())
    assert stored["model"]["merges"] == json.loads(own.to_str())["model"]["merges"]
    assert splits.train.tolist() == own.encode(toy_text).ids
    assert splits.valid.tolist() == [
        index for line in ODD.split("\n")[:-1] for index in own.encode(f"{line}\n").ids
    ]


def test_a_tokenizer_is_trained_once_for_each_content(folder, toy_text, monkeypatch):
    sizes = []
    train = subwords._train
    monkeypatch.setattr(subwords, "_train", lambda *a: sizes.append(a[1]) or train(*a))
    monkeypatch.setattr(subwords, "cache_folder", lambda: folder / "cache")
    first = subwords.trained_byte_pairs(toy_text, 290).json
    assert subwords.trained_byte_pairs(toy_text, 290).json == first
    assert sizes == [290]
    assert subwords.trained_byte_pairs(toy_text, 291).vocabulary[:290] == (
        subwords.trained_byte_pairs(toy_text, 290).vocabulary
    )
    assert len(subwords.trained_byte_pairs(toy_text[:-9], 290).vocabulary) == 290
    assert sizes == [290, 291, 290]
    for damage in (lambda raw: raw.replace(b"w", b"v", 1), lambda raw: b""):
        sizes.clear()
        file = next((folder / "cache").glob("*.json"))
        file.write_bytes(damage(file.read_bytes()))
        for _ in range(2):
            assert subwords.trained_byte_pairs(toy_text, 290).json == first
            (
                subwords.trained_byte_pairs(toy_text, 291),
                subwords.trained_byte_pairs(toy_text[:-9], 290),
            )
        assert len(sizes) == 1  # only what was damaged, and it is whole again
    monkeypatch.setattr(subwords, "cache_folder", lambda: folder / "train.txt" / "no folder")
    assert subwords.trained_byte_pairs(toy_text, 290).json == first


def test_fingerprint_knows_the_subwords(folder):
    words = TextCorpus("mine", str(folder), ".").fingerprint()
    prints = {words, *(corpus_in(folder, size).fingerprint() for size in (290, 291))}
    prints.add(corpus_in(folder, 290, train_tokens=100).fingerprint())
    assert len(prints) == 4
    assert corpus_in(folder, 290).fingerprint() in prints


def test_a_finished_runs_tokenizer_reads_another_text(folder):
    own = corpus_in(folder, 290)
    vocabulary, json_, before = own.load().vocabulary, own.tokenizer_json(), own.fingerprint()
    write(folder, train=" zz z \n", test=ODD)  # too short to train on
    other = corpus_in(folder, 290)
    with pytest.raises(UserError, match="gives: choose that many or fewer"):
        other.fingerprint()
    other = corpus_in(folder, 290)
    other.restore_tokenizer(json_)
    assert other.load(vocabulary).vocabulary == vocabulary
    assert decoded(other, "test") == ODD
    assert other.fingerprint() != before
    with pytest.raises(UserError, match=r"tokenizer=bpe has another vocabulary than the one"):
        other.load(vocabulary[:-1])


def test_part_of_the_training_text_is_the_same_whatever_the_tokens(folder):
    words = TextCorpus("mine", str(folder), ".", train_tokens=50).load()
    subwords = corpus_in(folder, train_tokens=50)
    text = decoded(subwords, "train")
    assert text.replace("\n", "<eos>").split() == [words.vocabulary[i] for i in words.train]
    assert subwords.load().vocabulary == corpus_in(folder).load().vocabulary
    with pytest.raises(UserError, match=r"data\.train_tokens=5001 is more than"):
        corpus_in(folder, train_tokens=5001).load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "words"}, r"data\.tokenizer must be one of spaces, bpe"),
        ({"tokenizer": "bpe"}, r"data\.vocab_size must be a whole number of at least 257"),
        ({"tokenizer": "bpe", "vocab_size": 256}, r"data\.vocab_size must be a whole number"),
        ({"vocab_size": 8000}, r"data\.vocab_size=8000 is for data\.tokenizer=bpe"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        TextCorpus("mine", None, ".", **options)


def test_a_prompt_goes_on_within_a_line(folder):
    corpus = corpus_in(folder)
    tokenizer = corpus.tokenizer_by(corpus.load().vocabulary)
    assert tokenizer.within_line("w1 w2") == " w1 w2" == tokenizer.within_line(" w1 w2")
    ids = tokenizer.ids("prompt", " w1 w2 \n w3")
    assert tokenizer.text(ids) == " w1 w2 \n w3"
    assert tokenizer.quotation(ids) == "w1 w2 <eos> w3"
    assert tokenizer.text([tokenizer.line_end()]) == " \n"
    with pytest.raises(UserError, match="prompt must hold a word"):
        tokenizer.ids("prompt", " ")


@pytest.mark.realdata
def test_penn_decodes_to_its_files(data_root):
    corpus = TextCorpus("penn", str(data_root), "penn", tokenizer="bpe", vocab_size=1000)
    splits = corpus.load()
    tokenizer = corpus.tokenizer_by(splits.vocabulary)
    for split in ("train", "valid", "test"):
        text = (data_root / "penn" / f"{split}.txt").read_bytes()
        assert tokenizer.text(splits.tokens(split).tolist()).encode() == text
    size = corpus.text_size("test", splits.vocabulary)
    assert (size.words, size.num_bytes, size.first_word_tokens) == (82429, 449945, 1)

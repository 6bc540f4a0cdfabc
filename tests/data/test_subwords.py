"""Subwords of a tokenizer that was saved in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, trainers

from lmkit.data.corpus import TextCorpus
from lmkit.data.subwords import Subwords, saved_subwords
from lmkit.data.tokenizer import words_of
from lmkit.errors.user_error import UserError
from tests.data.test_byte_pairs import ODD, corpus_in, folder, toy_text, write  # noqa: F401
from tests.pretrained_models import make_tokenizer


def saved_pairs(place: Path, folder: Path) -> str:  # noqa: F811
    """The byte pairs of the text in `folder`, as a tokenizer of `transformers`."""
    pairs = corpus_in(folder)
    place.mkdir()
    (place / "tokenizer.json").write_text(pairs.tokenizer_json())
    return str(place)


def of(folder: Path, tokenizer: str, **options: object) -> TextCorpus:  # noqa: F811
    return TextCorpus("mine", str(folder), ".", tokenizer="hf", tokenizer_of=tokenizer, **options)


@pytest.mark.parametrize("train_tokens", [None, 50])
def test_saved_byte_pairs_cut_as_they_do(tmp_path, folder, toy_text, train_tokens):  # noqa: F811
    write(folder, valid=toy_text[:900])
    pairs = corpus_in(folder, train_tokens=train_tokens)
    saved = of(folder, saved_pairs(tmp_path / "saved", folder), train_tokens=train_tokens)
    ours, theirs = pairs.load(), saved.load()
    assert theirs.vocabulary == ours.vocabulary
    assert [ids.tolist() for ids in theirs[1:]] == [ids.tolist() for ids in ours[1:]]
    assert saved.text_size("test", theirs.vocabulary) == pairs.text_size("test", ours.vocabulary)
    assert saved.unit == "subwords"
    assert saved.display_name == "mine, saved"
    assert saved.fingerprint() != pairs.fingerprint()


def test_tokens_are_those_of_the_text_without_special_ones(tmp_path):
    text = " hello <s> world \n hello\n"
    tokenizer = make_tokenizer(text * 20, begins=True)
    tokenizer.save_pretrained(tmp_path)
    ours = saved_subwords(str(tmp_path))
    ids = ours.encode(text).tolist()
    assert ids == tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.bos_token_id not in ids
    assert ours.text(ids) == text
    assert len(ours.vocabulary) == len(tokenizer)
    assert ours.text([ours.line_end()]) == "\n"
    assert ours.ids("prompt", "hello") == tokenizer("hello", add_special_tokens=False)["input_ids"]


def of_pieces(place: Path, text: str, **normalizer: object) -> Subwords:
    """As SentencePiece's: blanks are letters of words, and a word may reach over one."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False)
    made.train_from_iterator([text], trainer)
    made.save(str(place / "tokenizer.json"))
    return saved_subwords(str(place))


def test_pieces_of_the_llama_kind_keep_the_text(tmp_path):
    ours = of_pieces(tmp_path, "see the sea\nthe sea sees\n" * 9)
    for text in (ODD, "see the sea\n", "ü"):
        assert ours.text(ours.encode(text)) == text
    assert ours.text([ours.line_end()]) == "\n"


def test_words_that_share_a_token_have_no_figures_a_word(tmp_path):
    ours = of_pieces(tmp_path, "a b\n" * 50)
    assert len(ours.encode("a b\n")) < len(words_of("a b\n")) + 1
    assert ours.first_word_tokens("a b\n") is None
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b\n" * 9)
    corpus = of(tmp_path, str(tmp_path))
    assert corpus.text_size("test", corpus.load().vocabulary) is None


def test_a_tokenizer_that_loses_text_is_refused(tmp_path, folder):  # noqa: F811
    tokenizer = make_tokenizer("some words", begins=False).backend_tokenizer
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(folder, valid="a line\nThe Dog \n")
    becomes = r"in line 2, 'a line\\nThe Dog \\n' becomes 'a line\\nthe dog"
    with pytest.raises(UserError, match=becomes):
        of(folder, str(tmp_path)).load()


def test_what_is_no_tokenizer_is_named(tmp_path, folder):  # noqa: F811
    with pytest.raises(UserError, match=r"tokenizer_of=.* has no tokenizer\.json; AutoTokenizer"):
        of(folder, str(tmp_path / "none")).fingerprint()
    for content in ("{}", "[" * 10_000, "\0"):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(UserError, match=r"tokenizer\.json cannot be read: "):
            of(folder, str(tmp_path)).load()
    for options in ({"tokenizer": "hf"}, {"tokenizer_of": "x"}):
        with pytest.raises(UserError, match=r"need each other"):
            TextCorpus("mine", None, ".", **options)
    with pytest.raises(UserError, match=r"vocab_size=300 is for data\.tokenizer=bpe"):
        of(folder, "x", vocab_size=300)


def test_another_vocabulary_than_the_models_is_refused(tmp_path, folder):  # noqa: F811
    corpus = of(folder, saved_pairs(tmp_path / "saved", folder))
    vocabulary = corpus.load().vocabulary
    assert corpus.load(vocabulary).vocabulary == vocabulary
    with pytest.raises(UserError, match="has another vocabulary than the one"):
        corpus.load(vocabulary[:-1])

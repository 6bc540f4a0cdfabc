from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate

from lmkit.cli.entry import composed_apart
from lmkit.data.corpus import TextCorpus
from lmkit.errors.user_error import UserError
from lmkit.runs.names import name_of

TEXTS = {"train": "the cat sat\nthe dog\n", "valid": "a cat\n\n", "test": "a bird sat\n"}


def write_texts(folder: Path, **texts: str | bytes) -> TextCorpus:
    for split, text in {**TEXTS, **texts}.items():
        raw = text if isinstance(text, bytes) else text.encode()
        (folder / f"{split}.txt").write_bytes(raw)
    return TextCorpus("mine", str(folder), ".")


def words(corpus, split: str) -> str:
    return " ".join(corpus.vocabulary[token] for token in corpus.tokens(split))


def test_every_line_ends_in_eos_and_vocabulary_is_in_order_of_first_appearance(tmp_path):
    corpus = write_texts(tmp_path).load()
    assert corpus.vocabulary == ("the", "cat", "sat", "<eos>", "dog", "a", "bird")
    assert words(corpus, "train") == "the cat sat <eos> the dog <eos>"
    assert words(corpus, "valid") == "a cat <eos> <eos>"
    assert words(corpus, "test") == "a bird sat <eos>"
    assert {corpus.train.dtype, corpus.valid.dtype, corpus.test.dtype} == {np.dtype(np.int64)}
    assert corpus.train_word_counts().tolist() == [2, 1, 1, 2, 1, 0, 0]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a b\nc\n", "a b <eos> c <eos>"),
        ("a b\nc", "a b <eos> c <eos>"),
        ("a b\r\nc\r\n", "a b <eos> c <eos>"),
        ("a b\rc\r", "a b <eos> c <eos>"),
        ("\ufeffa  b \n\tc\n", "a b <eos> c <eos>"),
        ("a\u2028b\x0cc\x1cd\n", "a b c d <eos>"),  # str.splitlines would make four lines
    ],
    ids=["plain", "no final newline", "windows", "old mac", "byte order mark", "unicode's"],
)
def test_line_ends_of_every_system_read_alike(tmp_path, text, read):
    assert words(write_texts(tmp_path, train=text).load(), "train") == read


def test_line_ends_that_a_text_spells_out_are_told(tmp_path, capsys):
    """Each end of a line is one `<eos>`; those in the text come on top of it."""
    corpus = write_texts(tmp_path, train="a <eos>\n<eos> b\nc<eos>\n<eos> \n")
    for _ in range(2):
        assert words(corpus.load(), "train") == (
            "a <eos> <eos> <eos> b <eos> c<eos> <eos> <eos> <eos>"
        )
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "train.txt: 2 lines of train ended in <eos> already, and end in two now: " in told


def test_given_vocabulary_is_kept_and_decides_the_ids(tmp_path):
    vocabulary = ["<eos>", "zebra", "sat", "bird", "a", "dog", "cat", "the"]
    corpus = write_texts(tmp_path).load(vocabulary)
    assert corpus.vocabulary == tuple(vocabulary)
    assert corpus.test.tolist() == [4, 3, 2, 0]


def test_fingerprint_changes_with_any_byte_and_with_nothing_else(tmp_path):
    first = tmp_path / "first"
    second = tmp_path / "second"
    first.mkdir()
    second.mkdir()
    original = write_texts(first).fingerprint()
    assert len(original) == 64
    assert write_texts(second).fingerprint() == original
    assert TextCorpus("other name", str(tmp_path), "first").fingerprint() == original
    seen = {original}
    for split, text in TEXTS.items():
        seen.add(write_texts(second, **{split: text + " "}).fingerprint())
    # The same text, cut at another place.
    seen.add(write_texts(second, train="the cat sat\n", valid="the dog\na cat\n\n").fingerprint())
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"valid": "a cat\na dog\nthe walrus sat\n"}, "line 3: 'walrus' is not in the vocabulary"),
        *(({"valid": text}, "is empty") for text in ("", "\n\n", " \t\r\n", "\ufeff")),
        (
            {"valid": "erste Zeile\nGrü".encode() + "ße\n".encode("latin-1")},
            "line 2: the byte 0xdf is not UTF-8",
        ),
        ({"valid": b"a cat\r\na dog\rthe \xdf"}, "line 3: the byte 0xdf is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(tmp_path, texts, message):
    corpus = write_texts(tmp_path)
    vocabulary = corpus.load().vocabulary
    write_texts(tmp_path, **texts)
    with pytest.raises(UserError, match=rf"valid\.txt(, )?.*{message}"):
        corpus.load(vocabulary)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    corpus = write_texts(tmp_path)
    (tmp_path / "valid.txt").unlink()
    for read in (corpus.load, corpus.fingerprint):
        with pytest.raises(UserError, match=r"valid\.txt does not exist: data\.root=.* in it$"):
            read()
    (tmp_path / "valid.txt").mkdir()
    with pytest.raises(UserError, match=r"valid\.txt cannot be read"):
        corpus.load()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("penn", r"penn/train\.txt .* variable LMKIT_DATA; `lmkit download penn root=FOLDER`"),
        ("text", r"the folder with train\.txt in it as data\.root=FOLDER$"),
    ],
)
def test_an_unset_root_says_what_to_set_and_how_to_download(monkeypatch, name, message):
    monkeypatch.delenv("LMKIT_DATA", raising=False)
    with pytest.raises(UserError, match=rf"data\.root is not set: .*{message}"):
        TextCorpus(name, None, "." if name == "text" else name).fingerprint()


@pytest.mark.parametrize("is_in_config", [True, False])  # or in a run that names no folder
def test_the_environment_is_named_where_it_gave_the_folder(is_in_config, tmp_path, monkeypatch):
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path))
    root = str(tmp_path) if is_in_config else None
    told = rf"data\.root={tmp_path} \(LMKIT_DATA\) must be a folder with .*download wikitext-2"
    with pytest.raises(UserError, match=told):
        TextCorpus("wikitext-2", root, "wikitext-2").load()


@pytest.mark.parametrize(
    ("name", "title", "short", "root"),
    [
        ("penn", "Penn Treebank", "PTB", "/somewhere"),
        ("wikitext-2", "WikiText-2", "WT2", "/somewhere"),
        ("text", "text", "text", None),
    ],
)
def test_configs_give_a_corpus_its_names_and_the_folder_of_the_environment(
    name, title, short, root, monkeypatch
):
    monkeypatch.setenv("LMKIT_DATA", "/somewhere")
    corpus = instantiate(composed_apart("train", [f"data={name}"])["data"])
    assert (name_of(corpus), corpus.short_name) == (title, short)
    files = corpus.files
    assert (corpus.name, files.root, files.folder) == (name, root, name if root else ".")


def test_names_folders_and_fields_may_be_numbers():
    options = ("data=text", "data.root=/a", "data.name=1984", "data.folder=26", "data.field=5")
    corpus = instantiate(composed_apart("train", options)["data"])
    assert (name_of(corpus), corpus.short_name) == ("1984", "1984")
    assert (corpus.files.folder, corpus.files.field) == ("26", "5")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("folder", "tokens", "vocabulary_size"),
    [
        ("penn", (929_589, 73_760, 82_430), 10_000),
        ("wikitext-2", (2_088_628, 217_646, 245_569), 33_278),
    ],
)
def test_real_corpora_have_the_published_sizes(data_root, folder, tokens, vocabulary_size):
    corpus = TextCorpus(folder, str(data_root), folder).load()
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == tokens
    assert len(corpus.vocabulary) == vocabulary_size
    assert corpus.train.max() < vocabulary_size
    lines = (data_root / folder / "test.txt").read_text(encoding="utf-8").split("\n")
    eos = corpus.vocabulary.index("<eos>")
    assert int((corpus.test == eos).sum()) == len(lines) - 1


def test_first_tokens_of_the_training_text_keep_the_whole_vocabulary(tmp_path):
    whole = write_texts(tmp_path)
    part = TextCorpus("mine", str(tmp_path), ".", train_tokens=3)
    assert words(part.load(), "train") == "the cat sat"
    assert part.load().vocabulary == whole.load().vocabulary
    assert words(part.load(), "test") == words(whole.load(), "test")
    other = TextCorpus("mine", str(tmp_path), ".", train_tokens=4)
    assert len({whole.fingerprint(), part.fingerprint(), other.fingerprint()}) == 3


@pytest.mark.parametrize(("value", "message"), [(0, "at least 1"), (8, "more than the 7 tokens")])
def test_a_part_that_the_training_text_does_not_have_is_refused(tmp_path, value, message):
    write_texts(tmp_path)
    with pytest.raises(UserError, match=rf"data\.train_tokens.*{message}"):
        TextCorpus("mine", str(tmp_path), ".", train_tokens=value).load()

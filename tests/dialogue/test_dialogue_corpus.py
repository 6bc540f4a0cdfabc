import numpy as np
import pytest

from lmkit.dialogue.corpus import EOS_ID, UNK_ID
from lmkit.errors.user_error import UserError
from tests.dialogue.conftest import TEXTS, corpus, write


def spelt(splits, split: str) -> list[list[str]]:
    """The words of each utterance."""
    found = getattr(splits, split)
    words = [splits.vocabulary[i] for i in found.words_W]
    bounds = zip(found.starts_U[:-1], found.starts_U[1:], strict=True)
    return [words[start:stop] for start, stop in bounds]


def test_utterances_are_words_with_an_end(folder):
    splits = corpus(folder).load()
    assert spelt(splits, "train")[:4] == [
        ["hello", "there", ".", "<eos>"],
        ["hello", "!", "<eos>"],
        ["how", "are", "you", "?", "<eos>"],
        ["fine", ",", "and", "you", "?", "<eos>"],
    ]
    assert splits.train.first_U.tolist() == [0, 0, 0, 0, 4, 4, 6, 6, 6]
    assert splits.train.speaker_U.tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 0]
    assert splits.train.responses.tolist() == [1, 2, 3, 5, 7, 8]


def test_the_vocabulary_is_that_of_train_and_the_rest_is_unknown(folder):
    splits = corpus(folder).load()
    assert splits.vocabulary[:2] == ("<eos>", "<unk>")
    assert "am" not in splits.vocabulary
    assert spelt(splits, "test")[1] == ["<unk>", "<unk>", ".", "<eos>"]
    assert splits.vocabulary[EOS_ID] == "<eos>"
    assert splits.vocabulary[UNK_ID] == "<unk>"


def test_the_most_frequent_words_are_kept(folder):
    whole, few = corpus(folder).load(), corpus(folder, num_words=7).load()
    counts = np.bincount(whole.train.words_W)
    assert few.vocabulary == whole.vocabulary[:7]
    assert counts[2:7].min() >= counts[7:].max()


def test_a_run_reads_a_text_by_its_own_vocabulary(folder):
    splits = corpus(folder).load(("<eos>", "<unk>", "hello", "!"))
    assert spelt(splits, "train")[1] == ["hello", "!", "<eos>"]
    assert (splits.train.words_W[:3] == [2, UNK_ID, UNK_ID]).all()


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        ("word_punct", ["i", "don", "'", "t", "know", ".", "<eos>"]),
        ("treebank", ["i", "do", "n't", "know", ".", "<eos>"]),
        ("spaces", ["i", "don't", "know.", "<eos>"]),
    ],
)
def test_tokenizers(tmp_path, tokenizer, expected):
    lines = [("1", "A", "I don't know.", "a further column"), ("1", "B", "No")]
    root = write(tmp_path, dict.fromkeys(TEXTS, lines))
    assert spelt(corpus(root, tokenizer=tokenizer).load(), "train")[0] == expected
    upper = corpus(root, tokenizer=tokenizer, lowercase=False).load()
    assert spelt(upper, "train")[0][0] == "I"


def test_ends_of_utterances_that_a_text_spells_out_are_told(tmp_path, capsys):
    lines = [("1", "A", "Hello <eos>"), ("1", "B", "I <eos> see <eos>"), ("1", "A", "<eos>s")]
    source = corpus(write(tmp_path, TEXTS | {"train": lines}), tokenizer="spaces")
    for _ in range(2):
        assert spelt(source.load(), "train")[0] == ["hello", "<eos>", "<eos>"]
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "train.tsv: 2 utterances of train with <eos> inside, which ends a turn each time" in told


def test_marks_that_a_tokenizer_cuts_are_told(tmp_path, capsys):
    lines = [("1", "A", "Fine <unk>"), ("1", "B", "I see"), ("1", "A", "<eos>")]
    root = write(tmp_path, TEXTS | {"train": lines})
    assert spelt(corpus(root).load(), "train")[0] == ["fine", "<", "unk", ">", "<eos>"]
    assert (
        "train.tsv: 2 utterances of train with <eos> or <unk>, of which" in capsys.readouterr().err
    )
    corpus(root, tokenizer="spaces").load()
    assert "of which" not in capsys.readouterr().err


def test_the_first_dialogues_are_trained_on(folder):
    splits = corpus(folder, train_dialogues=1).load()
    assert len(splits.train.first_U) == 4
    assert "rains" not in splits.vocabulary
    with pytest.raises(UserError, match=r"data\.train_dialogues=4 is more than the 3 dialogues of"):
        corpus(folder, train_dialogues=4).load()


def test_what_decides_the_words_decides_the_fingerprint(folder):
    others = ({"tokenizer": "spaces"}, {"lowercase": False}, {"num_words": 9})
    found = [corpus(folder, **o).fingerprint() for o in ({}, *others, {"train_dialogues": 2})]
    assert len(set(found)) == 5
    assert corpus(folder, name="else").fingerprint() == found[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1\tA", "train.tsv, line 2: an utterance has three columns with a tab between them"),
        ("1\tA\tHi\r1\tB\tHi", "train.tsv, line 2: it has a carriage return inside"),
        ("2\tA\tx\ry", "train.tsv holds no response: no dialogue in it has two utterances"),
    ],
)
def test_bad_files_are_named(tmp_path, line, expected):
    root = write(tmp_path, TEXTS)
    (root / "train.tsv").write_text(f"1\tA\tx\n{line}\n")
    with pytest.raises(UserError, match=expected):
        corpus(root).load()


def test_missing_files_and_bad_options_are_named(tmp_path, folder):
    with pytest.raises(UserError, match=r"train\.tsv does not exist: data\.root="):
        corpus(tmp_path).fingerprint()
    with pytest.raises(UserError, match=r"data\.tokenizer must be one of word_punct, treebank"):
        corpus(folder, tokenizer="moses")
    with pytest.raises(UserError, match=r"data\.num_words must be a whole number of at least 3"):
        corpus(folder, num_words=2)
    (tmp_path / "train.tsv").write_bytes(b"1\tA\tx\n1\tB\t\xff\n")
    with pytest.raises(UserError, match=r"train\.tsv, line 2: the byte 0xff is not UTF-8 text"):
        corpus(write(tmp_path, {k: v for k, v in TEXTS.items() if k != "train"})).load()


def test_only_a_corpus_with_a_folder_of_its_own_is_found_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LMKIT_DATA", str(write(tmp_path, TEXTS)))
    told = r"data\.root is not set: give the folder with train\.tsv in it as data\.root=FOLDER$"
    with pytest.raises(UserError, match=told):
        corpus(tmp_path, root=None).fingerprint()
    with pytest.raises(
        UserError, match=r"data\.root=.* \(LMKIT_DATA\) must be a folder with mine/"
    ):
        corpus(tmp_path, root=None, folder="mine").fingerprint()


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "pairs"), [("switchboard", 4059), ("dailydialog", 6740)])
def test_every_utterance_but_the_first_is_a_response(data_root, tmp_path, name, pairs):
    lines = (data_root / name / "test.tsv").read_text("utf-8").splitlines()
    firsts = len({line.split("\t")[0] for line in lines})
    for split in TEXTS:  # the whole of train would take its time
        (tmp_path / f"{split}.tsv").write_bytes((data_root / name / "test.tsv").read_bytes())
    found = corpus(tmp_path, num_words=1000).load().test
    assert len(found.responses) == pairs == len(lines) - firsts

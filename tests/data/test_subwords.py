"""Subwords: byte pairs of the training text, and tokenizers that were saved in a folder."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from lmkit.data import subwords
from lmkit.data.corpus import TextCorpus
from lmkit.data.subwords import Subwords, saved_subwords, trained_byte_pairs
from lmkit.data.tokenizer import words_of
from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError
from tests.pretrained_models import make_tokenizer

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


def pairs_in(folder: Path, size: int = SIZE, **options: object) -> TextCorpus:
    return TextCorpus("mine", str(folder), ".", tokenizer="bpe", vocab_size=size, **options)


def saved_in(folder: Path, tokenizer: Path, **options: object) -> TextCorpus:
    return TextCorpus(
        "mine", str(folder), ".", tokenizer="hf", tokenizer_of=str(tokenizer), **options
    )


def save(tokenizer: tokenizers.Tokenizer, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def decoded(corpus: TextCorpus, split: str) -> str:
    splits = corpus.load()
    return corpus.tokenizer_by(splits.vocabulary).text(splits.tokens(split).tolist())


def test_vocabulary_and_tokens_of_byte_pairs_are_the_librarys_own(folder, toy_text):
    own = tokenizers.Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    own.train([str(folder / "train.txt")], trainer)
    splits = pairs_in(folder).load()
    assert {token: i for i, token in enumerate(splits.vocabulary)} == own.get_vocab()
    stored = json.loads(pairs_in(folder).tokenizer_json())
    assert stored["model"]["merges"] == json.loads(own.to_str())["model"]["merges"]
    assert splits.train.tolist() == own.encode(toy_text).ids
    assert splits.train.dtype == np.int64
    assert splits.valid.tolist() == [
        index for line in ODD.split("\n")[:-1] for index in own.encode(f"{line}\n").ids
    ]
    assert decoded(pairs_in(folder), "valid") == ODD


@pytest.mark.parametrize("text", [ODD, "a  b \n", "\n\n a\n", "x\x1cy \x85 z\n", " \n = T = \n"])
def test_words_are_those_of_a_word_level_model(folder, text):
    write(folder, test=text)
    plain = TextCorpus("mine", str(folder), ".").load()
    assert len(words_of(text)) == len(plain.test)
    assert "".join(words_of(text)) == text
    size = pairs_in(folder).text_size("test", pairs_in(folder).load().vocabulary)
    assert size[1:3] == (len(plain.test) - 1, len(text.encode()))


def test_byte_pairs_are_trained_once_for_each_content(folder, toy_text, monkeypatch):
    sizes = []
    train = subwords._train
    monkeypatch.setattr(subwords, "_train", lambda *a: sizes.append(a[1]) or train(*a))
    monkeypatch.setattr(subwords, "cache_folder", lambda: folder / "cache")
    first = trained_byte_pairs(toy_text, 290).json
    assert trained_byte_pairs(toy_text, 290).json == first
    assert sizes == [290]
    trained_byte_pairs(toy_text, 291), trained_byte_pairs(toy_text[:-9], 290)
    assert sizes == [290, 291, 290]
    for damage in (lambda raw: raw.replace(b"w", b"v", 1), lambda raw: b""):
        sizes.clear()
        file = next((folder / "cache").glob("*.json"))
        file.write_bytes(damage(file.read_bytes()))
        for _ in range(2):
            assert trained_byte_pairs(toy_text, 290).json == first
            trained_byte_pairs(toy_text, 291), trained_byte_pairs(toy_text[:-9], 290)
        assert len(sizes) == 1  # only what was damaged, and it is whole again
    monkeypatch.setattr(subwords, "cache_folder", lambda: folder / "train.txt" / "no folder")
    assert trained_byte_pairs(toy_text, 290).json == first


def test_a_finished_runs_tokenizer_reads_another_text(folder):
    own = pairs_in(folder, 290)
    vocabulary, json_, before = own.load().vocabulary, own.tokenizer_json(), own.fingerprint()
    write(folder, train=" zz z \n", test=ODD)  # too short to train on
    with pytest.raises(UserError, match="gives: choose that many or fewer"):
        pairs_in(folder, 290).fingerprint()
    other = pairs_in(folder, 290)
    other.restore_tokenizer(json_)
    assert other.load(vocabulary).vocabulary == vocabulary
    assert decoded(other, "test") == ODD
    assert other.fingerprint() != before
    with pytest.raises(UserError, match=r"tokenizer=bpe has another vocabulary than the one"):
        other.load(vocabulary[:-1])


def test_part_of_the_training_text_is_the_same_whatever_the_tokens(folder):
    words = TextCorpus("mine", str(folder), ".", train_tokens=50).load()
    part = pairs_in(folder, train_tokens=50)
    text = decoded(part, "train")
    assert text.replace("\n", "<eos>").split() == [words.vocabulary[i] for i in words.train]
    assert part.load().vocabulary == pairs_in(folder).load().vocabulary
    with pytest.raises(UserError, match=r"data\.train_tokens=5001 is more than"):
        pairs_in(folder, train_tokens=5001).load()


def test_fingerprints_know_the_subwords(folder, tmp_path):
    saved = save(make_tokenizer("some words").backend_tokenizer, tmp_path / "saved")
    corpora = [
        TextCorpus("mine", str(folder), "."),
        *(pairs_in(folder, size) for size in (290, 291)),
        pairs_in(folder, 290, train_tokens=100),
        saved_in(folder, saved),
    ]
    prints = [corpus.fingerprint() for corpus in corpora]
    assert len(set(prints)) == len(prints)
    assert pairs_in(folder, 290).fingerprint() == prints[1]
    finished = saved_in(folder, saved)
    finished.restore_tokenizer(corpora[-1].tokenizer_json())
    save(make_tokenizer("other words").backend_tokenizer, saved)  # in its place
    assert finished.fingerprint() == prints[-1] != saved_in(folder, saved).fingerprint()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "words"}, r"data\.tokenizer must be one of spaces, bpe"),
        ({"tokenizer": "bpe"}, r"data\.vocab_size must be a whole number of at least 257"),
        ({"tokenizer": "bpe", "vocab_size": 256}, r"data\.vocab_size must be a whole number"),
        ({"vocab_size": 8000}, r"data\.vocab_size=8000 is for data\.tokenizer=bpe"),
        ({"tokenizer": "hf", "tokenizer_of": "x", "vocab_size": 300}, r"vocab_size=300 is for"),
        ({"tokenizer": "hf"}, r"need each other"),
        ({"tokenizer_of": "x"}, r"need each other"),
        ({"tokenizer": "hf", "tokenizer_of": 3}, r"data\.tokenizer_of must be a text, but is 3"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        TextCorpus("mine", None, ".", **options)


def test_a_prompt_goes_on_within_a_line(folder):
    corpus = pairs_in(folder)
    tokenizer = corpus.tokenizer_by(corpus.load().vocabulary)
    assert tokenizer.within_line("w1 w2") == " w1 w2" == tokenizer.within_line(" w1 w2")
    ids = tokenizer.ids("prompt", " w1 w2 \n w3")
    assert tokenizer.text(ids) == " w1 w2 \n w3"
    assert tokenizer.quotation(ids) == "w1 w2 <eos> w3"
    assert tokenizer.text([tokenizer.line_end()]) == " \n"
    with pytest.raises(UserError, match="prompt must hold a word"):
        tokenizer.ids("prompt", " ")


@pytest.mark.slow
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


@pytest.mark.parametrize("train_tokens", [None, 50])
def test_saved_byte_pairs_cut_as_they_do(tmp_path, folder, toy_text, train_tokens):
    write(folder, valid=toy_text[:900])
    pairs = pairs_in(folder, train_tokens=train_tokens)
    place = save(tokenizers.Tokenizer.from_str(pairs.tokenizer_json()), tmp_path / "saved")
    saved = saved_in(folder, place, train_tokens=train_tokens)
    ours, theirs = pairs.load(), saved.load()
    assert theirs.vocabulary == ours.vocabulary
    assert [ids.tolist() for ids in theirs[1:]] == [ids.tolist() for ids in ours[1:]]
    assert saved.text_size("test", theirs.vocabulary) == pairs.text_size("test", ours.vocabulary)
    assert (saved.unit, saved.display_name) == ("subwords", "mine, saved")
    with pytest.raises(UserError, match=r"tokenizer_of=.* has another vocabulary than the one"):
        saved.load(theirs.vocabulary[:-1])


def test_a_finished_run_needs_the_folder_of_its_tokenizer_no_more(tmp_path, folder):
    place = save(tokenizers.Tokenizer.from_str(pairs_in(folder).tokenizer_json()), tmp_path / "a")
    corpus = saved_in(folder, place)
    kept, before, vocabulary = corpus.tokenizer_json(), corpus.fingerprint(), corpus.load()[0]
    place.rename(tmp_path / "b")
    later = saved_in(folder, place)
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        later.fingerprint()
    later.restore_tokenizer(kept)
    assert later.fingerprint() == before
    assert later.load(vocabulary).vocabulary == vocabulary
    write(folder, test=ODD)
    assert later.fingerprint() != before


def test_a_run_that_kept_what_the_library_makes_of_its_tokenizer_is_of_that_text(tmp_path, folder):
    """As earlier versions of lmkit did, which hashed the file."""
    place = save(tokenizers.Tokenizer.from_str(pairs_in(folder).tokenizer_json()), tmp_path / "a")
    corpus, later = saved_in(folder, place), saved_in(folder, place)
    made = Subwords.of_json(corpus.tokenizer_json()).json
    assert made != corpus.tokenizer_json()  # which is indented
    later.restore_tokenizer(made)
    assert later.fingerprint() == corpus.fingerprint()
    save(make_tokenizer("other words").backend_tokenizer, place)  # in its place
    later.restore_tokenizer(made)
    assert later.fingerprint() != saved_in(folder, place).fingerprint()


def test_saved_tokens_are_those_of_the_text_without_special_ones(tmp_path):
    text = " hello <s> world \n hello\n"
    tokenizer = make_tokenizer(text * 20, begins=True)
    tokenizer.save_pretrained(tmp_path)
    limited = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    limited.enable_truncation(3)
    limited.enable_padding(length=200)
    ours = saved_subwords(str(save(limited, tmp_path)))
    ids = ours.encode(text).tolist()
    assert ids == tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.bos_token_id not in ids
    assert ours.text(ids) == text
    assert len(ours.vocabulary) == len(tokenizer)
    assert ours.text([ours.line_end()]) == "\n"


def of_pieces(place: Path, text: str) -> Subwords:
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
    return saved_subwords(str(save(made, place)))


def test_pieces_of_the_llama_kind_keep_the_text(tmp_path):
    ours = of_pieces(tmp_path, "see the sea\nthe sea sees\n" * 9)
    for text in (ODD, "see the sea\n", "ü"):
        assert ours.text(ours.encode(text)) == text
    assert ours.text([ours.line_end()]) == "\n"
    assert ours.within_line("see the") == "see the"  # it puts a blank there itself


def test_words_that_share_a_token_have_no_figures_a_word(tmp_path):
    ours = of_pieces(tmp_path, "a b\n" * 50)
    assert len(ours.encode("a b\n")) < len(words_of("a b\n")) + 1
    write(tmp_path, **dict.fromkeys(("train", "valid", "test"), "a b\n" * 9))
    corpus = saved_in(tmp_path, tmp_path)
    assert corpus.text_size("test", corpus.load().vocabulary) is None


def test_a_tokenizer_that_loses_text_is_refused(tmp_path, folder):
    tokenizer = make_tokenizer("some words", begins=False).backend_tokenizer
    tokenizer.normalizer = normalizers.Lowercase()
    write(folder, valid="a line\nThe Dog \n")
    becomes = r"in line 2, 'a line\\nThe Dog \\n' becomes 'a line\\nthe dog"
    with pytest.raises(UserError, match=becomes):
        saved_in(folder, save(tokenizer, tmp_path)).load()


def test_what_is_no_tokenizer_is_named(tmp_path, folder):
    with pytest.raises(UserError, match=r"tokenizer_of=.* has no tokenizer\.json; AutoTokenizer"):
        saved_in(folder, tmp_path / "none").fingerprint()
    for content in ("{}", "[" * 10_000, "\0"):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(UserError, match=r"tokenizer\.json cannot be read: "):
            saved_in(folder, tmp_path).load()
    made = tokenizers.Tokenizer(models.WordLevel({"a": 0}))  # without an unknown token
    with pytest.raises(UserError, match=r"the tokenizer cannot read the text: WordLevel error"):
        saved_in(folder, save(made, tmp_path / "words")).load()

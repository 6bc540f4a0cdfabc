"""Words between white space, as prompts are read and samples are written."""

import pytest

from lmkit.data.corpus import TextCorpus
from lmkit.data.tokenizer import Words
from lmkit.errors.user_error import UserError

WORDS = Words(("<eos>", "a", "b", "c"))


@pytest.mark.parametrize(
    "text",
    [
        "a b", "a\nb\n", "a\n\nb", "a\r\nb\rc", "\na",
        "a\u0085b\u2028c\u00a0a\u3000b\n", "a\x0bb\x0cc\x1ca",
    ],
)  # fmt: skip
def test_a_prompt_is_read_as_a_corpus_reads_its_lines(tmp_path, text):
    """But for the end of the last line, which a prompt has only where it is written."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_bytes(text.encode())
    in_corpus = TextCorpus("mine", str(tmp_path), ".").load(WORDS.vocabulary).test.tolist()
    ids = WORDS.ids("prompt", text)
    assert (ids if text.endswith("\n") else [*ids, 0]) == in_corpus


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_a_prompt_without_a_word_is_refused(text):
    with pytest.raises(UserError, match="prompt must hold a word"):
        WORDS.ids("prompt", text)


@pytest.mark.parametrize(
    ("ids", "text"),
    [([1, 2], "a b"), ([1, 0, 2, 0], "a\nb\n"), ([0, 1, 0, 0, 2, 0, 0, 0, 3], "\na\n\nb\n\n\nc")],
)
def test_no_line_of_a_sample_begins_or_ends_with_a_blank(ids, text):
    assert WORDS.text(ids) == text
    assert WORDS.ids("text", text) == ids

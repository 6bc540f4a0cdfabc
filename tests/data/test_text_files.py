"""The same text in every form that a corpus may have."""

import gzip
import json
from pathlib import Path

import pytest

from lmkit.data.corpus import TextCorpus
from lmkit.errors.user_error import UserError

TEXTS = {"train": "the cat sat\na dog\n", "valid": "a cat\n\n", "test": "the dog\n"}
LINES = [f"line {number % 7}" for number in range(40)]


def records(lines: list[str], field: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, field: line}) + "\n" for line in lines).encode()


def write(folder: Path, ending: str) -> str:
    folder.mkdir()
    for split, text in TEXTS.items():
        raw = records(text.removesuffix("\n").split("\n")) if "jsonl" in ending else text.encode()
        raw = gzip.compress(raw) if ending.endswith(".gz") else raw
        (folder / f"{split}{ending}").write_bytes(raw)
    return str(folder)


def data_set(folder: Path, texts: dict[str, list[str]] | list[str], field: str = "text") -> str:
    import datasets  # which takes a second

    datasets.disable_progress_bars()
    if isinstance(texts, list):
        made = datasets.Dataset.from_dict({field: texts})
    else:
        splits = {name: datasets.Dataset.from_dict({field: each}) for name, each in texts.items()}
        made = datasets.DatasetDict(splits)
    made.save_to_disk(folder)
    return str(folder)


def corpus(root: str, **options: object) -> TextCorpus:
    return TextCorpus("mine", root, ".", **options)


@pytest.mark.parametrize("ending", [".txt.gz", ".jsonl", ".jsonl.gz"])
def test_the_same_text_is_the_same_data_in_every_form(tmp_path, ending):
    plain, other = (
        corpus(write(tmp_path / name, form)) for name, form in (("a", ".txt"), ("b", ending))
    )
    assert other.fingerprint() == plain.fingerprint()
    assert other.load()[0] == plain.load()[0] == ("the", "cat", "sat", "<eos>", "a", "dog")
    assert [ids.tolist() for ids in other.load()[1:]] == [ids.tolist() for ids in plain.load()[1:]]
    assert other.text_size("test", other.load().vocabulary) == plain.text_size("test", ())


def test_a_byte_order_mark_is_no_byte_of_the_text(tmp_path):
    text = corpus(write(tmp_path / "texts", ".txt"))
    size = text.text_size("test", ())
    (tmp_path / "texts/test.txt").write_text("\ufeff" + TEXTS["test"], "utf-8")
    assert text.text_size("test", ()) == size


def test_a_data_set_is_read_by_its_splits(tmp_path):
    plain = corpus(write(tmp_path / "plain", ".txt"))
    lines = {name: text.removesuffix("\n").split("\n") for name, text in TEXTS.items()}
    texts = {"train": lines["train"], "validation": lines["valid"], "test": lines["test"]}
    root = data_set(tmp_path / "set", texts, "content")
    assert corpus(root, field="content").fingerprint() == plain.fingerprint()
    with pytest.raises(UserError, match=r"no column data\.field=text; there are: content"):
        corpus(root).fingerprint()
    root = data_set(tmp_path / "without", {"train": ["a"], "test": ["b"]})
    with pytest.raises(UserError, match="has no split validation; there are: train, test"):
        corpus(root).fingerprint()


def test_valid_and_test_are_cut_off_the_end_of_one_text(tmp_path):
    text = "".join(f"{line}\n" for line in LINES)
    roots = [tmp_path / f"all{ending}" for ending in (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")]
    for root in roots:
        raw = records(LINES) if "jsonl" in root.name else text.encode()
        root.write_bytes(gzip.compress(raw) if root.suffix == ".gz" else raw)
    roots.append(Path(data_set(tmp_path / "set", LINES)))
    for root in roots:
        files = corpus(str(root), held_out=0.1).files
        cut = [files.read(split).decode().splitlines() for split in ("train", "valid", "test")]
        assert cut == [LINES[:32], LINES[32:36], LINES[36:]], root
    assert len({corpus(str(root)).fingerprint() for root in roots}) == 1
    assert len(corpus(str(roots[0])).files.read("test").splitlines()) == 2  # a twentieth


def test_a_record_of_several_lines_ends_each(tmp_path):
    root = tmp_path / "all.jsonl"
    root.write_bytes(records(["a b\nc", "d\n", "e", "f"]))
    assert corpus(str(root)).files.read("train") == b"a b\nc\nd\n"


def test_blank_lines_between_records_are_passed_over(tmp_path):
    root = tmp_path / "all.jsonl"
    root.write_bytes(records(["a", "b", "c"]).replace(b"\n", b"\n\n"))
    assert corpus(str(root)).files.read("train") == b"a\n"


@pytest.mark.parametrize(
    ("name", "raw", "where"),
    [
        ("all.txt", b"a\nb\na\n\na\nb\na\nx\na\n", r"all\.txt: valid, line 8: 'x'"),
        ("all.txt.gz", b"a\nb\na\na x\n", r"all\.txt\.gz: test, line 4: 'x'"),
        ("all.jsonl", records(["a\na\na", "b", "a\nb\nx"]), r"all\.jsonl: test, line 3: 'x'"),
        ("all.jsonl", b"\n\n" + records(["x", "a", "a"]), r"all\.jsonl: train, line 3: 'x'"),
    ],
)
def test_an_unknown_word_is_found_by_the_lines_of_the_file(tmp_path, name, raw, where):
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    with pytest.raises(UserError, match=where):
        corpus(str(tmp_path / name)).load(["a", "b", "<eos>"])


def test_a_row_of_a_data_set_is_named(tmp_path):
    root = data_set(tmp_path / "set", {"train": ["a", "a\nb"], "valid": ["a", "x"], "test": ["a"]})
    with pytest.raises(UserError, match=r"set: valid, row 2: 'x' is not in the vocabulary"):
        corpus(root).load(["a", "b", "<eos>"])


@pytest.mark.parametrize("name", ["all.txt", "all.jsonl"])
def test_a_split_that_blank_lines_leave_empty_is_named(tmp_path, name):
    lines = ["a b"] * 19 + [""]
    raw = records(lines) if name == "all.jsonl" else "\n".join(lines).encode() + b"\n"
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(UserError, match=rf"{name}: test is empty; it must hold at least one line"):
        corpus(str(tmp_path / name)).load()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"text": "a"}\n{"text"\n', r"train\.jsonl, line 2: it is not JSON, as each"),
        (b"[" * 100_000, r"line 1: it is not JSON"),
        ('{"text": "Grüße"}'.encode("latin-1"), r"line 1: the byte 0xfc is not UTF-8 text; conv"),
        (b'{"body": "a", "id": 3}\n', r"no text in data\.field=text; there are: body, id"),
        (b'{"text": 3}\n', r"line 1: it has no text in data\.field=text"),
        (b"3\n", r"there are: no fields"),
        (
            b'{"text": "a"}\n\n{"text": "a \\ud83d b"}\n',
            r"line 3: \\ud83d is half a surrogate pair",
        ),
    ],
)
def test_records_that_hold_no_text_are_named(tmp_path, raw, message):
    root = write(tmp_path / "texts", ".jsonl")
    (tmp_path / "texts" / "train.jsonl").write_bytes(raw)
    with pytest.raises(UserError, match=message):
        corpus(root).fingerprint()
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(raw))
    with pytest.raises(UserError, match=r"all\.jsonl\.gz, line \d: "):
        corpus(str(tmp_path / "all.jsonl.gz")).fingerprint()


def test_a_folder_in_the_place_of_a_file_is_no_data_set(tmp_path):
    root = write(tmp_path / "texts", ".txt")
    (tmp_path / "texts" / "train.txt").unlink()
    data_set(tmp_path / "texts" / "train.txt", LINES)
    with pytest.raises(UserError, match=r"train\.txt cannot be read: Is a directory"):
        corpus(root).fingerprint()


def test_what_cannot_be_read_is_named(tmp_path):
    root = write(tmp_path / "texts", ".txt.gz")
    file = tmp_path / "texts" / "valid.txt.gz"
    for damaged in (file.read_bytes()[:-9], b"plain"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"valid\.txt\.gz is damaged, or not compressed"):
            corpus(root).fingerprint()
    (tmp_path / "texts" / "train.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"train\.txt and train\.txt\.gz are both there"):
        corpus(root).fingerprint()
    (tmp_path / "short.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"short\.txt has 2 lines: too few"):
        corpus(str(tmp_path / "short.txt")).fingerprint()
    for share in (0, 0.5, -1):
        with pytest.raises(UserError, match=r"data\.held_out must be between 0 and 0\.5"):
            corpus(root, held_out=share)
    for share in ("x", None):
        with pytest.raises(UserError, match=r"data\.held_out must be a finite number, but is "):
            corpus(root, held_out=share)
    broken = data_set(tmp_path / "set", LINES)
    (tmp_path / "set" / "state.json").write_text("{}")
    with pytest.raises(UserError, match="set cannot be read: "):
        corpus(broken).fingerprint()

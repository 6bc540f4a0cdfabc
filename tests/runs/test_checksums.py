"""No file of a run that has changed on its disk is read as other numbers."""

import errno
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.runs.analysis_files import analysis_file, read_analysis, write_analysis
from lmkit.runs.array_files import (
    final_spectrum,
    read_arrays,
    read_spectrum,
    write_arrays,
    write_spectrum,
)
from lmkit.runs.checksums import KEY
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.names import RunNames
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result
from lmkit.training.checkpoint_files import AtomicCheckpointIO, load_checkpoint

NAMES = RunNames("Softmax", "softmax", (0, 0, 0), "AWD-LSTM", "ET 200", "Penn Treebank", "PTB")
IDENTITY = RunIdentity({"seed": 1, "lr": 0.1}, "0123456789ab")
SPENT = Spent(max_epochs=3, patience=None, epochs=3, stopped="max_epochs")
PAGE = 64  # as a page of 4096 in a file of a usual size


class Stored(NamedTuple):
    """A file of a run, and how its numbers are read, in a form that shows every bit of them."""

    path: Path
    read: Callable[[], object]


def test_a_file_that_is_nested_too_deeply_is_damaged(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"result\.json is damaged: it is nested too deeply"):
        RunFolder(tmp_path).read_result()


def in_a_run(kind: str, folder: Path) -> Stored:
    run = RunFolder(folder / "toy-0123456789ab")
    run.prepare("lr: 30.5\nseed: 141\nname: toy\n", IDENTITY, NAMES)
    match kind:
        case "config":
            return Stored(run.config, lambda: repr(run.read_config()))
        case "identity":
            return Stored(run.identity, lambda: repr(run.read_identity()))
        case "result":
            metrics = {"test_ppl": 57.0 + 2**-40, "valid_ppl": 1 / 3, "epochs": 3, "rank": None}
            result = Result(SCHEMA_VERSION, "toy", "0123456789ab", metrics, {}, {}, SPENT)
            publish_result(run.result, result)
            return Stored(run.result, lambda: repr(run.read_result()))
        case "analysis":
            about = {"kind": "rank", "schema_version": 3}
            content = {"press_rank": 7, "values": [0.1, 1e-300, -0.0]}
            write_analysis(run, "rank", about | content)
            return Stored(
                analysis_file(run, "rank"), lambda: repr(read_analysis(run, "rank", **about))
            )
        case "arrays":
            path = run.analysis / "rank.npz"
            write_arrays(path, {"values": np.geomspace(100, 1e-7, 40)})
            return Stored(path, lambda: repr(read_arrays(path)))
        case "spectrum":
            path = final_spectrum(run)
            write_spectrum(path, np.geomspace(100, 1e-7, 40), {"press_rank": 12})
            return Stored(path, lambda: spectrum_bits(path))
        case "checkpoint":
            torch.manual_seed(1)
            content = {"state_dict": {"w": torch.randn(30), "b": torch.zeros(3)}, "epoch": 7}
            AtomicCheckpointIO(lambda: None).save_checkpoint(content, run.last)
            return Stored(run.last, lambda: checkpoint_bits(run.last))
    raise AssertionError(kind)


def spectrum_bits(path: Path) -> str:
    stored = read_spectrum(path)
    return f"{stored.singular_values_S.tobytes().hex()} {stored.measures!r}"


def checkpoint_bits(path: Path) -> str:
    content = load_checkpoint(path)
    weights = {n: w.numpy().tobytes().hex() for n, w in content.pop("state_dict").items()}
    return f"{weights!r} {content!r}"


KINDS = ("config", "identity", "result", "analysis", "arrays", "spectrum", "checkpoint")


def with_a_bit_changed(whole: bytes) -> Iterator[bytes]:
    """One bit of each byte; of a long file, of every few."""
    draw = random.Random(1)
    for at in range(0, len(whole), 1 + len(whole) // 500):
        changed = whole[at] ^ 1 << draw.randrange(8)
        yield whole[:at] + bytes([changed]) + whole[at + 1 :]


def with_a_page_lost(whole: bytes) -> Iterator[bytes]:
    """Each page of zeros, then each page as the one before it, then the file cut short there."""
    for at in range(0, len(whole), PAGE):
        page = whole[at : at + PAGE]
        yield whole[:at] + bytes(len(page)) + whole[at + PAGE :]
        yield whole[:at] + whole[max(0, at - PAGE) :][: len(page)] + whole[at + PAGE :]
        yield whole[:at]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damaged", [with_a_bit_changed, with_a_page_lost])
def test_nothing_damaged_is_read_as_other_numbers(kind, damaged, tmp_path):
    stored = in_a_run(kind, tmp_path)
    whole, numbers = stored.path.read_bytes(), stored.read()
    refusals = []
    for content in damaged(whole):
        if content == whole:
            continue
        stored.path.write_bytes(content)
        try:
            assert stored.read() == numbers, "a damaged file was read as other numbers"
        except UserError as error:
            refusals.append(str(error))
    assert len(refusals) > len(whole) / PAGE
    assert all(str(stored.path) in line and "\n" not in line for line in refusals)
    stored.path.write_bytes(whole)
    assert stored.read() == numbers


@pytest.mark.parametrize("kind", ["config", "identity", "result", "analysis", "arrays"])
def test_what_cannot_be_read_just_now_is_not_called_damaged(kind: str, tmp_path, monkeypatch):
    stored = in_a_run(kind, tmp_path)

    def out_of_reach(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", out_of_reach)
    with pytest.raises(UserError, match=r"^[^:]*read[^:]*: Input/output error$") as raised:
        stored.read()
    assert str(stored.path) in str(raised.value)


@pytest.mark.parametrize("kind", ["identity", "result", "analysis"])
def test_a_number_changed_by_hand_is_refused(kind: str, tmp_path: Path) -> None:
    stored = in_a_run(kind, tmp_path)
    text = stored.path.read_text()
    stored.path.write_text(text.replace("0.1", "0.2").replace("0.333", "0.334"))
    with pytest.raises(UserError, match="is damaged: its content is not what was written"):
        stored.read()
    stored.path.write_text(json.dumps(json.loads(text)))  # another layout, the same numbers
    stored.read()


@pytest.mark.parametrize("kind", ["identity", "result", "analysis"])
def test_a_file_of_an_earlier_version_is_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    stored = in_a_run(kind, tmp_path)
    content = json.loads(stored.path.read_text())
    del content[KEY]
    content["schema_version"] -= 1
    stored.path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"has schema version 1|has schema version 2"):
        stored.read()


@pytest.mark.parametrize("kind", ["config", "spectrum", "checkpoint"])
def test_a_file_without_its_checksum_is_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    stored = in_a_run(kind, tmp_path)
    stored.path.write_bytes(stored.path.read_bytes().rpartition(b"# sha256")[0])
    with pytest.raises(UserError, match="it is truncated, or from an earlier lmkit"):
        stored.read()

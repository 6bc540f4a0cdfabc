"""Contexts on the disk: whole or not at all, computed once, found where a bit has changed."""

import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.filesize import decimal as data_size

from lmkit.errors.user_error import UserError
from lmkit.fixed_trunk import cache, store
from lmkit.fixed_trunk.cache import FILE, lock_of
from lmkit.fixed_trunk.corpus import TrunkContexts
from lmkit.fixed_trunk.store import Contents, stored_contexts
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def contents(dtype: str = "float32", key: int = 1) -> Contents:
    return Contents({"key": key}, "some", (30, 2, 4), dtype)


def values() -> torch.Tensor:
    return torch.randn(30, 2, 4, generator=torch.Generator().manual_seed(1))


def nothing() -> list[torch.Tensor]:
    raise AssertionError("computed again")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_computed_is_read_by_windows_of_any_length(dtype, capsys):
    found = stored_contexts(contents(dtype), lambda: torch.split(values(), 7))
    assert found.dtype == store.DTYPES[dtype]
    assert torch.equal(found, values().to(found.dtype))
    assert "60 of 4 numbers" in capsys.readouterr().out  # said beforehand
    assert torch.equal(stored_contexts(contents(dtype), nothing), found)


def test_other_contexts_have_another_file():
    paths = {contents().path, contents("bfloat16").path, contents(key=2).path}
    assert len(paths) == 3


def test_another_text_of_the_same_length_has_contexts_of_its_own():
    trunk = SimpleNamespace(_decides=dict, name="some", out_dim=4, dtype="float32")

    def stored(tokens: list[int], contexts: torch.Tensor) -> torch.Tensor:
        compute = partial(list, [contexts])
        return TrunkContexts._stored(trunk, np.array(tokens), "test", 30, 2, compute)

    assert torch.equal(stored([1, 2], values()), values())
    assert torch.equal(stored([2, 1], -values()), -values())
    assert torch.equal(stored([1, 2], -values()), values())


def test_a_flipped_bit_is_found_and_the_contexts_computed_anew(capsys):
    stored_contexts(contents(), lambda: [values()])
    path = contents().path
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    calls = []
    again = stored_contexts(contents(), lambda: calls.append(1) or [values()])
    assert calls == [1]
    assert torch.equal(again, values())
    assert capsys.readouterr().out.count("is damaged") == 1
    assert torch.equal(stored_contexts(contents(), nothing), values())


def test_contexts_that_fail_leave_nothing(folder):
    def fails():
        yield values()[:10]
        raise UserError("no more")

    with pytest.raises(UserError, match="no more"):
        stored_contexts(contents(), fails)
    assert not list(folder.rglob(FILE))
    assert torch.equal(stored_contexts(contents(), lambda: [values()]), values())


def test_contexts_of_another_size_are_refused():
    with pytest.raises(UserError, match="contexts of 3 numbers, not 4"):
        stored_contexts(contents(), lambda: [values()[..., :3]])


def test_a_disk_that_is_too_small(monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"960 bytes.*100 bytes are free.*bfloat16"):
        stored_contexts(contents(), lambda: [values()])


def _reader(log: Path, slow_s: float) -> None:
    def compute():
        with log.open("a") as file:
            file.write("computed\n")
        for part in torch.split(values(), 1):
            time.sleep(slow_s / 30)
            yield part

    found = stored_contexts(contents(), compute)
    with log.open("a") as file:
        file.write("right\n" if torch.equal(found, values()) else "wrong\n")


def test_eight_processes_compute_once(tmp_path):
    log, context = tmp_path / "log", multiprocessing.get_context("fork")
    readers = [context.Process(target=_reader, args=(log, 1.0)) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(600)
    lines = log.read_text().splitlines()
    assert lines.count("computed") == 1
    assert lines.count("right") == 8
    assert len(lines) == 9
    assert not lock_of(contents().path).exists()


def test_a_process_that_is_killed_while_it_computes_is_replaced(tmp_path, folder):
    log, context = tmp_path / "log", multiprocessing.get_context("fork")
    first = context.Process(target=_reader, args=(log, 30.0))
    first.start()
    wait_for(lambda: log.exists() and list(folder.rglob(".*.tmp")))
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    assert torch.equal(stored_contexts(contents(), lambda: [values()]), values())
    assert not list(folder.rglob(".*.tmp"))


def test_clean_knows_contexts(folder, tmp_path, lmkit, refused):
    stored_contexts(contents(), lambda: [values()])
    linked = folder / "linked"  # moved to another disk
    linked.symlink_to(tmp_path)
    size = data_size(512 * contents().path.stat().st_blocks)
    assert refused("clean", "contexts", "keep=none") == (
        "keep is for runs: contexts are removed whole"
    )
    for words, gone in ((["contexts"], False), (["contexts", "dry_run=false"], True)):
        shown = lmkit("clean", *words)
        assert contents().path.exists() is not gone
        assert (f"{size} freed" if gone else "nothing has been removed") in shown
    assert list(folder.glob("*")) == [linked]

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.measures import measure
from lmkit.spectra.storage import read_spectrum, write_spectrum

VALUES = torch.tensor([3.0, 2.0, 1e-12], dtype=torch.float64)


def stored_bytes() -> bytes:
    file = io.BytesIO()
    write_spectrum(file, VALUES, measure(VALUES, 50, 3, torch.float32))
    return file.getvalue()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "test.npz"
    path.write_bytes(stored_bytes())
    stored = read_spectrum(path)
    assert torch.equal(stored.singular_values, VALUES)
    assert stored.measures == measure(VALUES, 50, 3, torch.float32)
    assert stored.measures.condition is None


def test_the_file_holds_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "test.npz"
    path.write_bytes(stored_bytes())
    with np.load(path, allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays.files} == {
            "format_version": "i",
            "singular_values": "f",
            "measures": "U",
        }


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no spectrum at .*none\.npz"):
        read_spectrum(tmp_path / "none.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip", stored_bytes()[:300]])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "torn.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"torn\.npz is not a readable spectrum"):
        read_spectrum(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    np.savez(path, format_version=np.int64(99))
    with pytest.raises(UserError, match="format 99"):
        read_spectrum(path)


def test_missing_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.npz"
    np.savez(path, format_version=np.int64(1), singular_values=np.ones(2))
    with pytest.raises(UserError, match=r"bare\.npz is not a readable"):
        read_spectrum(path)

"""Files of spectra, as they are written, listed and read."""

import io
from pathlib import Path

import numpy as np
import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.array_files import (
    epoch_spectra,
    epoch_spectrum,
    final_spectrum,
    read_spectrum,
    write_spectrum,
)
from lmkit.runs.checksums import checked
from lmkit.runs.folder import RunFolder

VALUES_S = np.array([4.0, 2.0, 1e-12])
MEASURES = {"press_rank": 2, "effective_rank": {"0.001": None}}


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder(tmp_path)


def test_what_is_written_is_read(run):
    path = final_spectrum(run)
    write_spectrum(path, VALUES_S, MEASURES)
    stored = read_spectrum(path)
    assert stored.singular_values_S.tolist() == VALUES_S.tolist()
    assert stored.relative_S.tolist() == [1.0, 0.5, 2.5e-13]
    assert stored.measures == MEASURES
    with np.load(path, allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays.files} == {
            "format_version": "i",
            "singular_values": "f",
            "measures": "U",
        }


def test_epochs_are_listed_by_split_and_matrix(run):
    assert epoch_spectra(run) == {}
    for epoch, split, matrix in (
        (10, "valid", "log_probs"),
        (2, "valid", "log_probs"),
        (2, "test", "transformed_logits"),
    ):
        write_spectrum(epoch_spectrum(run, epoch, split, matrix), VALUES_S, MEASURES)
    write_spectrum(final_spectrum(run), VALUES_S, MEASURES)
    listed = epoch_spectra(run)
    assert list(listed) == [("test", "transformed_logits"), ("valid", "log_probs")]
    assert list(listed["valid", "log_probs"]) == [2, 10]
    assert listed["test", "transformed_logits"][2].name == "epoch_0002_test_transformed_logits.npz"


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"no spectrum at .*none\.npz"):
        read_spectrum(tmp_path / "none.npz")


def stored_bytes(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return checked(file.getvalue())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (stored_bytes(format_version=np.int64(2)), "is not a readable spectrum"),
        (stored_bytes(format_version=np.int64(99)), "has spectrum format 99"),
    ],
)
def test_a_file_of_other_content_is_named(tmp_path: Path, content: bytes, error: str):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"other\.npz {error}"):
        read_spectrum(path)

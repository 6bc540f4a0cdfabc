"""Files of arrays, without pickle: what analyses measured, and spectra.

    analysis/<stem>.npz                        arrays beside an analysis's record
    spectra/epoch_0004_valid_log_probs.npz     of a split and a matrix after an epoch
    spectra/test_log_probs.npz                 of the best weights, at the end of training

A spectrum is singular values and what was measured of them.

Shapes: S singular values, descending.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmkit.errors.user_error import UserError
from lmkit.runs.analysis_files import MEASURE_AGAIN
from lmkit.runs.atomic import Check, make_folder, replace_bytes, unlocked
from lmkit.runs.checksums import checked, unchecked
from lmkit.runs.folder import RunFolder

FORMAT_VERSION = 2

Arrays = Mapping[str, np.ndarray]
Measures = dict[str, Any]  # as returned by `lmkit.spectra.measures.SpectrumMeasures.to_dict`


def write_arrays(path: Path, arrays: Arrays, check: Check = unlocked) -> None:
    """Writes arrays, replacing any earlier file.

    Raises: UserError naming the file when it cannot be written, or an array holds objects, which
        no reader loads; what `check` raises.
    """
    objects = next((name for name, array in arrays.items() if array.dtype.hasobject), None)
    if objects is not None:
        raise UserError(
            f"{path} is not written: the array {objects} holds objects of Python; numbers and "
            f"np.array(texts, dtype=str) can be stored"
        )
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]  # an option named as an array
    make_folder(path.parent)
    replace_bytes(path, checked(archive.getvalue()), check)


def read_arrays(path: Path, mend: str = MEASURE_AGAIN) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises: FileNotFoundError; UserError naming the file when it is damaged.
    """
    try:
        with np.load(io.BytesIO(unchecked(path.read_bytes())), allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from None


class StoredSpectrum(NamedTuple):
    singular_values_S: NDArray[np.float64]
    measures: Measures

    @property
    def relative_S(self) -> NDArray[np.float64]:  # noqa: N802
        """The singular values relative to the largest."""
        values_S: NDArray[np.float64] = self.singular_values_S / self.singular_values_S[0]
        return values_S


def epoch_spectrum(run: RunFolder, epoch: int, split: str, matrix: str) -> Path:
    """The file for the spectrum after an epoch, counted from 1."""
    return run.spectra / f"epoch_{epoch:04d}_{split}_{matrix}.npz"


def final_spectrum(run: RunFolder, matrix: str = "log_probs") -> Path:
    """The file for the spectrum on test of the best weights, from the end of training."""
    return run.spectra / f"test_{matrix}.npz"


def epoch_spectra(run: RunFolder) -> dict[tuple[str, str], dict[int, Path]]:
    """The existing files of epochs: by split and matrix, then by epoch, in order."""
    files: dict[tuple[str, str], dict[int, Path]] = {}
    for path in sorted(run.spectra.glob("epoch_*.npz")):
        named = re.fullmatch(r"epoch_(\d+)_([a-z]+)_(\w+)\.npz", path.name)
        if named is not None:
            files.setdefault((named[2], named[3]), {})[int(named[1])] = path
    return dict(sorted(files.items()))


def write_spectrum(
    path: Path, singular_values_S: NDArray[np.float64], measures: Measures, check: Check = unlocked
) -> None:
    """Writes a spectrum, as `write_arrays` does."""
    stored = {"format_version": np.array(FORMAT_VERSION), "singular_values": singular_values_S}
    stored |= {"measures": np.array(json.dumps(measures, allow_nan=False))}
    write_arrays(path, stored, check)


def read_spectrum(path: Path) -> StoredSpectrum:
    """Raises UserError, naming the file, where it is missing, damaged or of another version."""
    try:
        arrays = read_arrays(path, "remove it")
        if arrays["format_version"] != FORMAT_VERSION:
            version = arrays["format_version"]
            raise UserError(f"{path} has spectrum format {version}, not {FORMAT_VERSION}")
        return StoredSpectrum(arrays["singular_values"], json.loads(str(arrays["measures"])))
    except FileNotFoundError:
        raise UserError(f"there is no spectrum at {path}") from None
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} is not a readable spectrum: {error}") from error

"""`spectra/*.npz`: singular values and what was measured of them, without pickle.

    epoch_0004_valid_log_probs.npz     of a split and a matrix after an epoch
    test_log_probs.npz                 of the best weights, at the end of training

Shapes: S singular values, descending.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import make_folder, replace_bytes
from lmkit.runs.checksums import checked, unchecked
from lmkit.runs.folder import RunFolder

FORMAT_VERSION = 2

Measures = dict[str, Any]  # as returned by `lmkit.spectra.measures.SpectrumMeasures.to_dict`


class StoredSpectrum(NamedTuple):
    """What a file holds."""

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
    path: Path,
    singular_values_S: NDArray[np.float64],
    measures: Mapping[str, Any],
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Writes a spectrum, replacing any earlier file.

    Args:
        before_rename: called once the content is on disk; an exception cancels the write.

    Raises: UserError naming the file when it cannot be written.
    """
    archive = io.BytesIO()
    np.savez(
        archive,
        format_version=np.int64(FORMAT_VERSION),
        singular_values=singular_values_S,
        measures=np.array(json.dumps(measures, allow_nan=False)),
    )
    make_folder(path.parent)
    replace_bytes(path, checked(archive.getvalue()), before_rename)


_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError),
    *(RecursionError, zipfile.BadZipFile),
)


def read_spectrum(path: Path) -> StoredSpectrum:
    """Raises UserError, naming the file, where it is missing, damaged or of another version."""
    try:
        archive = io.BytesIO(unchecked(path.read_bytes()))
        with np.load(archive, allow_pickle=False) as arrays:
            version = int(arrays["format_version"])
            if version != FORMAT_VERSION:
                raise UserError(f"{path} has spectrum format {version}, not {FORMAT_VERSION}")
            measures = json.loads(str(arrays["measures"]))
            return StoredSpectrum(arrays["singular_values"], dict(measures))
    except FileNotFoundError:
        raise UserError(f"there is no spectrum at {path}") from None
    except _UNREADABLE as error:
        raise UserError(f"{path} is not a readable spectrum: {error}") from error

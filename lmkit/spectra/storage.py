"""A spectrum and its measures as one .npz file, without pickle.

Shapes: S singular values, descending.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.spectra.measures import SpectrumMeasures

FORMAT_VERSION = 1


class StoredSpectrum(NamedTuple):
    """What a file holds: singular values (S,) float64 descending, and their measures."""

    singular_values: Tensor
    measures: SpectrumMeasures


def write_spectrum(file: BinaryIO, singular_values: Tensor, measures: SpectrumMeasures) -> None:
    """Writes into an open binary file; how the file is replaced is the caller's choice."""
    np.savez(
        file,
        format_version=np.int64(FORMAT_VERSION),
        singular_values=singular_values.detach().to("cpu", torch.float64).numpy(),
        measures=np.array(json.dumps(measures.to_dict(), allow_nan=False)),
    )


def read_spectrum(path: str | Path) -> StoredSpectrum:
    """Raises UserError, naming the file, where it is missing, damaged or of another version."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            version = int(arrays["format_version"])
            if version != FORMAT_VERSION:
                raise UserError(f"{path} has spectrum format {version}, not {FORMAT_VERSION}")
            values = torch.from_numpy(arrays["singular_values"])
            return StoredSpectrum(values, SpectrumMeasures(**json.loads(str(arrays["measures"]))))
    except FileNotFoundError:
        raise UserError(f"there is no spectrum at {path}") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable spectrum: {error}") from error

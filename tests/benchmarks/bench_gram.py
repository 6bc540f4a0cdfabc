"""Other ways to the singular values of a tall float32 matrix, beside the float64 Gram matrix.

    python tests/benchmarks/bench_gram.py --rows 16000 --columns 2000

All on the same log P, once of a softmax (rank 102: its zeros show the error that squaring leaves)
and once of a mixture of softmaxes. For each way: seconds for the product, seconds for the rest,
the largest deviation from a tall-skinny QR in float64, relative to sigma_1, and
Press's rank. What a deviation above 1e-7 sigma_1 makes faster is no answer.

Shapes: N contexts, E embedding, K mixture components, V vocabulary.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg.blas import dsyrk, ssyrk
from torch import Tensor

from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.ranks import press_rank, press_tolerance

EMB_DIM = 100
INT8_ROWS = 65_536  # of products of int8 digits: sums stay below 2^31


def log_probs(num_rows: int, num_columns: int, components: int) -> Tensor:
    """log P (N, V) float32 of a mixture of softmaxes."""
    generator = torch.Generator().manual_seed(0)
    weight_VE = 0.3 * torch.randn(num_columns, EMB_DIM, generator=generator)
    bias_V = 1.5 * torch.randn(num_columns, generator=generator)
    scale_E = 1 / torch.arange(1.0, EMB_DIM + 1)
    rows_NV = torch.empty(num_rows, num_columns)
    for part_NV in rows_NV.split(500):
        shape = (components, len(part_NV))
        context_KNE = scale_E * torch.randn(*shape, EMB_DIM, generator=generator)
        prior_KN1 = torch.log_softmax(2 * torch.randn(*shape, 1, generator=generator), 0)
        joint_KNV = torch.log_softmax(context_KNE @ weight_VE.T + bias_V, -1) + prior_KN1
        part_NV.copy_(torch.logsumexp(joint_KNV, 0))
    return rows_NV


def panels_float64(rows_NV: Tensor) -> Tensor:
    """What the package does: products by panels of columns in float64, upper triangle only."""
    accumulator = GramAccumulator(rows_NV.shape[1])
    accumulator.add(rows_NV)
    accumulator._flush()
    return accumulator._gram_VV


def symmetric_float64(rows_NV: Tensor) -> Tensor:
    """BLAS's symmetric rank-k update in float64, as SciPy brings it (its own threads)."""
    gram_VV = torch.zeros(2 * rows_NV.shape[1:], dtype=torch.float64)
    for part_NV in rows_NV.split(2048):
        part_NV = part_NV.double()
        dsyrk(1.0, part_NV.T.numpy(), beta=1.0, c=gram_VV.T.numpy(), lower=1, overwrite_c=1)
    return gram_VV


def product_float64(rows_NV: Tensor) -> Tensor:
    """PyTorch's full product in float64."""
    gram_VV = torch.zeros(2 * rows_NV.shape[1:], dtype=torch.float64)
    for part_NV in rows_NV.split(2048):
        part_NV = part_NV.double()
        gram_VV.addmm_(part_NV.T, part_NV)
    return gram_VV


def symmetric_float32_centred(rows_NV: Tensor) -> Tensor:
    """Symmetric products of 2048 float32 rows, less a reference row, summed in float64."""
    reference_V = rows_NV[:512].mean(0)
    gram_VV = torch.zeros(2 * rows_NV.shape[1:], dtype=torch.float64)
    sum_V = torch.zeros_like(gram_VV[0])
    product = np.zeros(gram_VV.shape, np.float32, order="F")
    for part_NV in rows_NV.split(2048):
        part_NV = part_NV - reference_V
        ssyrk(1.0, part_NV.T.numpy(), beta=0.0, c=product, lower=1, overwrite_c=1)
        gram_VV += torch.from_numpy(product.T)
        sum_V += part_NV.sum(0, dtype=torch.float64)
    reference_V = reference_V.double()
    crossed_VV = torch.outer(sum_V, reference_V)
    gram_VV += crossed_VV + crossed_VV.T + len(rows_NV) * torch.outer(reference_V, reference_V)
    return gram_VV


def int8_digits(rows_NV: Tensor) -> Tensor:
    """Each column as 24-bit fixed point in three int8 digits; products of digits are exact."""
    gram_VV = torch.zeros(2 * rows_NV.shape[1:], dtype=torch.float64)
    for part_NV in rows_NV.split(INT8_ROWS):
        step_V = part_NV.abs().amax(0).clamp(min=1e-30) / (2**23 - 2**16)
        rest_NV = (part_NV / step_V).round_().to(torch.int32)
        digits = []  # least significant first
        for _ in range(3):
            digit_NV = ((rest_NV + 128) & 255) - 128
            rest_NV = (rest_NV - digit_NV) >> 8
            digits.append(digit_NV.to(torch.int8))
        product_VV = torch.zeros_like(gram_VV)
        for i, left_NV in enumerate(digits):
            left_VN = left_NV.T.contiguous()
            for j, right_NV in enumerate(digits[: i + 1]):
                term_VV = torch._int_mm(left_VN, right_NV).double() * 256.0 ** (i + j)
                product_VV += term_VV if i == j else term_VV + term_VV.T
        gram_VV += step_V.double() * product_VV * step_V.double()[:, None]
    return gram_VV


def triangle(rows_NV: Tensor) -> Tensor:
    """R of a blocked tall-skinny QR in float64."""
    num_columns = rows_NV.shape[1]
    upper_VV = torch.zeros(0, num_columns, dtype=torch.float64)
    for part_NV in rows_NV.split(4 * num_columns):
        upper_VV = torch.linalg.qr(torch.cat([upper_VV, part_NV.double()]), mode="r").R
    return upper_VV


def of_gram(gram_VV: Tensor) -> Tensor:
    """Singular values from the upper triangle of the Gram matrix."""
    return torch.linalg.eigvalsh(gram_VV, UPLO="U").flip(0).clamp(min=0).sqrt()


WAYS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tall-skinny QR, float64": (triangle, torch.linalg.svdvals),
    "panels, float64": (panels_float64, of_gram),
    "symmetric update, float64": (symmetric_float64, of_gram),
    "PyTorch's product, float64": (product_float64, of_gram),
    "symmetric, float32, centred": (symmetric_float32_centred, of_gram),
    "int8 digits, exact": (int8_digits, of_gram),
}


def main() -> None:
    """Prints one line for each way and matrix; the best of the repetitions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    for components in (1, 3):
        rows_NV = log_probs(args.rows, args.columns, components)
        print(f"{args.rows} x {args.columns}, {components} softmax(es), best of {args.repeat}")
        tolerance = press_tolerance(args.rows, args.columns, torch.float32)
        reference = None
        for name in args.ways:
            product, finish = WAYS[name]
            times = []
            for _ in range(args.repeat):
                started = time.perf_counter()
                small_VV = product(rows_NV)
                between = time.perf_counter()
                values = finish(small_VV)
                times.append((between - started, time.perf_counter() - between))
            reference = values if reference is None else reference
            deviation = float((values - reference).abs().max() / reference[0])
            first, second = (min(column) for column in zip(*times, strict=True))
            print(
                f"  {name:28s} {first:7.2f} s + {second:6.2f} s   deviation {deviation:.1e}   "
                f"Press rank {press_rank(values, tolerance)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

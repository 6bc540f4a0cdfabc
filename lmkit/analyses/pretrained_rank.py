"""What `lmkit rank hf=` measures and shows of a pretrained model beyond what it does for a run.
Godey et al. 2024 follow the same over training.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmkit import measures, pretrained
from lmkit.analyses import decoder_rank
from lmkit.analyses.analysis import Content, MeasuredRun
from lmkit.analyses.first_contexts import FirstContexts
from lmkit.presentation.checkpoint_curves import Panel, Points
from lmkit.presentation.tables import decimal
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import measured_stem, write_spectrum


def measure_rank(
    loaded: pretrained.loading.LoadedPretrained,
    text: str,
    folder: RunFolder,
    first: FirstContexts,
    matrix: str,
) -> Content:
    """Spectra of log P and of the weight, likelihood and mean cosine, in one pass.

    Args:
        text: the name of the text.
        folder: for the spectra.
        first: which contexts are measured.
        matrix: log_probs or transformed_logits.
    """
    windows, count, available = first.among(loaded.windows, text)
    statistics = pretrained.text_statistics.TextStatistics(loaded.model.head)
    shown = loaded.with_bar(windows, count, "singular values")
    spectrum = measures.model_spectra.fitting_spectrum(
        loaded.model, shown, count, matrix, statistics.add
    )
    weight = measures.model_spectra.weight_spectrum(loaded.model.head)
    values = spectrum.singular_values.cpu().numpy()
    path = folder.spectra / f"{measured_stem(text, matrix, count, 'best')}.npz"
    write_spectrum(path, values, spectrum.measures.to_dict())
    return {
        "matrix": matrix,
        "all_contexts": available,
        "test_ppl": None,
        "perplexity": statistics.perplexity,
        "bits_per_byte": statistics.bits_per_byte(loaded.text.num_bytes(count)),
        "no_bits_per_byte": loaded.text.lost,
        "spectrum": spectrum.measures.to_dict(),
        **decoder_rank.stored(folder, "best", weight, statistics.mean_cosine),
    }


def cells(content: Content) -> dict[str, str]:
    """Rows of the table that only pretrained models have."""
    model = content.get("pretrained")
    if model is None:
        return {}
    rows = {
        "step": None if model["step"] is None else f"{model['step']:,}",
        "logits": model["logits"],
        "perplexity per token": decimal(content["perplexity"], 2),
        "bits per byte": _bits_per_byte(content),
    }
    return {name: cell for name, cell in rows.items() if cell}


def _bits_per_byte(content: Content) -> str | None:
    bits, reason = content["bits_per_byte"], content.get("no_bits_per_byte")
    return f"none: {reason}" if bits is None and reason else bits and f"{bits:.4f}"


def panels(measured: Sequence[MeasuredRun]) -> list[Panel]:
    """Curves over the steps of training, of the models whose step is known."""
    ranks = {"0.001": "1e−3-effective", "0.0001": "1e−4-effective", "1e-05": "1e−5-effective"}
    perplexity, log_p, weight, cosine = Points(), Points(), Points(), Points()
    contents = [content for _, content in measured if "pretrained" in content]
    families = {content["pretrained"]["family"] for content in contents}
    for content in contents:
        family, step = (content["pretrained"][name] for name in ("family", "step"))
        if step is None:
            continue
        of = f"{family}, " if len(families) > 1 else ""
        perplexity.add(family, step, content["perplexity"])
        cosine.add(family, step, content["mean_cosine"])
        for epsilon, name in ranks.items():
            log_p.add(f"{of}{name}", step, content["spectrum"]["effective_rank"][epsilon])
        log_p.add(f"{of}entropy", step, content["spectrum"]["entropy_rank"])
        weight.add(f"{of}entropy", step, content["weight_spectrum"]["entropy_rank"])
        weight.add(f"{of}stable", step, content["weight_spectrum"]["stable_rank"])
    return [
        Panel("perplexity per token", perplexity, is_log=True),
        Panel("rank of log P", log_p, is_log=True),
        Panel("rank of the decoder's weight", weight, is_log=True),
        Panel("mean cosine of two contexts", cosine),
    ]

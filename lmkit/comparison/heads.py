"""What the heads are called: by mixture and transform, and by what tells runs of them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lmkit.runs.finished import Run

_OWN = {"AdversarialHead": "Adversarial", "MultiFacetSoftmax": "Multi-facet"}
_OWN |= {"SpectrumControl": "Spectrum control"}
_MIXTURES = {"SingleContext": "", "MixtureOfContexts": "MoC", "MixtureOfSoftmaxes": "MoS"}
_MIXTURES |= {"DirectOutputConnection": "DOC"}
_TRANSFORMS = {
    "Identity": "",
    "SigSoftmax": "SS",
    "GeneralizedSigSoftmax": "GSS",
    "PiecewiseLinear": "LMS-PLIF",
    "MonotoneMLP": "monotone MLP",
}
_FROZEN = "†"
_FAMILIES = {  # as `baseline=` takes them, and in the papers' order
    "softmax": "Softmax",
    "ss": "SS",
    "gss": "GSS",
    "lms_plif": "LMS-PLIF",
    "lms_plif_frozen": f"LMS-PLIF{_FROZEN}",
    "moc": "MoC",
    "mos": "MoS",
    "mos_plif": "MoS + LMS-PLIF",
}
# do not change what a number means, or follow from other settings
_IGNORED = (
    "data_sha256", "identity_version", "device_kind", "threads", "seed",
    "head.mixture.in_dim", "head.mixture.emb_dim", "head.mixture._target_",
    "head.transform._target_", "head.transform.frozen", "head.chunk_mb", "head.loss",
    "head._target_", "head.in_dim", "head.emb_dim",
    "trainer.deterministic", "windows.eval_length",
)  # fmt: skip
_SHORT = {"head.mixture.num_experts": "K", "head.mixture.latent_dropout": "latent dropout"}
_SHORT |= {"head.num_experts": "K", "head.num_partitions": "J"}
_SHOWN_DIFFERENCES = 4


@dataclass(frozen=True)
class Head:
    """A mixture with a transform, or a kind of its own with them."""

    family: str  # as an option names it: "softmax", "gss", "mos_ss"
    name: str  # as a table names it: "Softmax", "GSS", "MoS + SS"


def head_of(run: Run) -> Head:
    """The head by its classes; one from outside is called by its class."""
    section = run.settings["head"]
    mixture, transform = _class(section, "mixture"), _class(section, "transform")
    name = _TRANSFORMS.get(transform, transform)
    if dict(section.get("transform") or {}).get("frozen"):
        name += _FROZEN
    own = str(section.get("_target_", "")).rpartition(".")[2]
    parts = [part for part in (_OWN.get(own, own), _MIXTURES.get(mixture, mixture), name) if part]
    name = " + ".join(parts) or "Softmax"
    return Head(_slug(name), name)


def classes_of(run: Run) -> list[object]:
    """What tells heads apart beside their settings: their classes, and whether slopes are frozen.

    Classes of one name from different modules are different heads.
    """
    section = run.settings["head"]
    parts = [dict(section.get(part) or {}) for part in ("mixture", "transform")]
    own = section.get("_target_")
    return [own, *(part.get("_target_") for part in parts), parts[1].get("frozen")]


def family_order(head: Head) -> tuple[int, str]:
    """The papers' order, then the alphabet's."""
    known = list(_FAMILIES)
    return known.index(head.family) if head.family in known else len(known), head.name


def settings_of(run: Run) -> dict[str, object]:
    """Everything else that decides the numbers, by dotted option; the seed is none of it."""
    found = {o: v for o, v in _leaves(run.settings, "") if not o.startswith("parent.")}
    found["finetuned"] = "parent" in run.settings  # which parent differs from seed to seed
    found |= {"max_epochs": run.result.budget.max_epochs, "patience": run.result.budget.patience}
    return {name: value for name, value in found.items() if name not in _IGNORED}


def trigger_name(settings: Mapping[str, object]) -> str:
    """When averaging starts: "ET 200", "NT 5", "SGD" (never), or the class of another trigger."""
    kind = str(settings.get("trigger._target_", "")).rpartition(".")[2]
    if kind == "AtEpoch":
        return f"ET {settings.get('trigger.epoch')}"
    if kind == "NonMonotone":
        return f"NT {settings.get('trigger.n')}"
    return "SGD" if kind == "Never" else kind


def labels(names: Sequence[str], settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Each head's name with the settings in which it differs from others of the same name.

    Where more than a few differ, the first of them are named, and a number tells the rest.
    """
    found = []
    for name, mine in zip(names, settings, strict=True):
        peers = [s for n, s in zip(names, settings, strict=True) if n == name]
        differing = differing_settings(peers)
        told = list(dict.fromkeys(_told(option, mine) for option in differing))
        if len(told) > _SHOWN_DIFFERENCES:
            index = next(i for i, peer in enumerate(peers) if peer is mine)
            told = [*told[: _SHOWN_DIFFERENCES - 1], f"… #{index + 1}"]
        found.append(f"{name} ({', '.join(told)})" if told else name)
    return found


def differing_settings(settings: Iterable[Mapping[str, object]]) -> list[str]:
    """Options that do not have the same value in all of them, the head's first."""
    all_settings = list(settings)
    options = dict.fromkeys(option for each in all_settings for option in each)
    differing = [
        option
        for option in options
        if any(each.get(option) != all_settings[0].get(option) for each in all_settings)
    ]
    return sorted(differing, key=lambda option: not option.startswith("head."))


def setting_text(option: str, value: object) -> str:
    """`c=−1.5`: the option's last part and its value."""
    name = _SHORT.get(option, option.rpartition(".")[2].replace("_", " "))
    if isinstance(value, float | int):
        return f"{name}={f'{value}'.replace('-', '−')}"
    return f"{name}={'none' if value is None else value}"


def _told(option: str, settings: Mapping[str, object]) -> str:
    if option.startswith("trigger."):
        return trigger_name(settings)
    if option == "finetuned":
        return "finetuned" if settings[option] else "not finetuned"
    return setting_text(option, settings.get(option))


def _class(section: Mapping[str, object], part: str) -> str:
    target = section.get(part)
    name = target.get("_target_", "") if isinstance(target, Mapping) else ""
    return str(name).rpartition(".")[2]


def _slug(name: str) -> str:
    for family, known in _FAMILIES.items():
        if name == known:
            return family
    return "_".join(
        word.replace(_FROZEN, "_frozen").lower().replace("-", "_").replace(" ", "_")
        for word in name.split(" + ")
    )


def _leaves(value: object, option: str) -> Iterable[tuple[str, object]]:
    """Every scalar below `value` with its dotted option; a list is one of them."""
    if isinstance(value, Mapping):
        prefix = f"{option}." if option else ""
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}{key}")
    else:
        yield option, tuple(value) if isinstance(value, list) else value

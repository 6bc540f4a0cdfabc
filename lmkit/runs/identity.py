"""What a run is called: a digest of everything that decides its numbers, and of nothing else.

The identity is an allowlist. An option that does not change the numbers (a path, a name, a logger,
the budget of epochs and patience) is not in it, so a new one of that kind renames no run. Whoever
changes what is in the list, or what an old value in it means, raises IDENTITY_VERSION.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError

IDENTITY_VERSION = 1

_SECTIONS = ("trunk", "head", "objective", "optimizer", "trigger", "windows", "seed", "threads")
_TRAINER = ("precision", "deterministic")
_PARENT = ("identity", "weights_sha256")  # of a run that begins with another's weights
_DIGEST_LENGTH = 12


class Identity(NamedTuple):
    """The identity of a run: `settings` in full, `digest` in 12 hexadecimal digits."""

    settings: dict[str, object]
    digest: str


def identity(config: Mapping[str, Any], data_sha256: str, device_kind: str) -> Identity:
    """The identity of the run that `config` describes.

    Args:
        config: the composed configuration as plain mappings, lists and scalars.
        data_sha256: fingerprint of the corpus, which stands for `config["data"]`.
        device_kind: "cpu" or "cuda", for example: sums differ between them.

    Raises: UserError naming the option that is missing, or is no number, text, list or mapping.
    """
    payload: dict[str, object] = {
        "identity_version": IDENTITY_VERSION,
        "data_sha256": data_sha256,
        "device_kind": device_kind,
    }
    for section in _SECTIONS:
        payload[section] = _canonical(_option(config, section, section), section)
    trainer = _option(config, "trainer", "trainer")
    if not isinstance(trainer, Mapping):
        raise UserError(f"trainer must be a mapping, but is {trainer!r}")
    payload["trainer"] = {
        key: _canonical(_option(trainer, key, f"trainer.{key}"), f"trainer.{key}")
        for key in _TRAINER
    }
    if "parent" in config:
        payload["parent"] = {key: config["parent"][key] for key in _PARENT}
    return _named(payload)


def identity_of(decides: Mapping[str, object]) -> Identity:
    """The identity of anything but a training run, from all that decides its numbers.

    Raises: UserError naming the option that is no number, text, list or mapping.
    """
    return _named({key: _canonical(value, key) for key, value in decides.items()})


def _named(payload: dict[str, object]) -> Identity:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return Identity(payload, hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH])


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """The options in which two payloads differ, each as `head.transform.k: 0.5, now 0.7`."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    lines = []
    for option in sorted(before.keys() | after.keys()):
        was, now = before.get(option, "absent"), after.get(option, "absent")
        if was != now:
            lines.append(f"{option}: {was}, now {now}")
    return lines


def _option(config: Mapping[str, object], key: str, option: str) -> object:
    if key not in config:
        raise UserError(f"{option} is missing from the configuration: a run is not defined without")
    return config[key]


def _canonical(value: object, option: str) -> object:
    """`value` in the one form in which equal numbers are written alike: 1.0 as 1, -0.0 as 0."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"{option} must be a finite number, but is {value!r}")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner, f"{option}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner, f"{option}[{i}]") for i, inner in enumerate(value)]
    raise UserError(
        f"{option} must be a number, a text, a list or a mapping, but is a {type(value).__name__}"
    )


def _leaves(value: object, option: str) -> list[tuple[str, str]]:
    """Every scalar below `value` as (dotted option, JSON text)."""
    if isinstance(value, Mapping) and value:
        prefix = f"{option}." if option else ""
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{prefix}{key}")]
    return [(option, json.dumps(value, sort_keys=True))]

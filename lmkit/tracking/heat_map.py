"""A heat map over two axes of a sweep, as a Vega-Lite chart, since W&B has no such panel."""

from __future__ import annotations

import hashlib
import json

DISPLAY_NAME = "lmkit heat map"
_X, _Y = (
    {"field": f"${{field:{axis}}}", "type": "ordinal", "title": f"${{string:{axis}}}"}
    for axis in ("x", "y")
)
_VALUE = {
    "field": "${field:value}",
    "aggregate": "mean",
    "type": "quantitative",
    "title": "${string:value}",
}
_COUNT = {"aggregate": "count", "type": "quantitative", "title": "runs"}
# W&B substitutes a panel's fields and texts for ${...}. Runs that share a cell are averaged.
SPEC = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "title": "${string:title}",
    "data": {"name": "wandb"},
    "transform": [
        {"filter": "isValid(datum['${field:x}']) && isValid(datum['${field:y}'])"},
        {"filter": "isValid(datum['${field:value}'])"},
    ],
    "mark": {"type": "rect"},
    "encoding": {
        "x": _X,
        "y": {**_Y, "sort": "descending"},
        "color": {**_VALUE, "scale": {"scheme": "viridis", "zero": False}},
        "tooltip": [_X, _Y, _VALUE, _COUNT],
    },
}


def chart_name() -> str:
    """The chart's name in W&B, which changes only with SPEC: one chart serves all sweeps."""
    digest = hashlib.sha256(json.dumps(SPEC, sort_keys=True).encode()).hexdigest()
    return f"lmkit-heat-map-{digest[:8]}"

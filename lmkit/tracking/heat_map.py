"""A heat map over two axes of a sweep, as a Vega-Lite chart, since W&B has no such panel."""

from __future__ import annotations

import hashlib
import json

DISPLAY_NAME = "lmkit heat map"
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
        "x": {"field": "${field:x}", "type": "ordinal", "title": "${string:x}"},
        "y": {
            "field": "${field:y}",
            "type": "ordinal",
            "title": "${string:y}",
            "sort": "descending",
        },
        "color": {
            "field": "${field:value}",
            "aggregate": "mean",
            "type": "quantitative",
            "title": "${string:value}",
            "scale": {"scheme": "viridis", "zero": False},
        },
        "tooltip": [
            {"field": "${field:x}", "type": "ordinal", "title": "${string:x}"},
            {"field": "${field:y}", "type": "ordinal", "title": "${string:y}"},
            {
                "field": "${field:value}",
                "aggregate": "mean",
                "type": "quantitative",
                "title": "${string:value}",
            },
            {"aggregate": "count", "type": "quantitative", "title": "runs"},
        ],
    },
}


def chart_name() -> str:
    """The chart's name in W&B, which changes only with SPEC: one chart serves all sweeps."""
    digest = hashlib.sha256(json.dumps(SPEC, sort_keys=True).encode()).hexdigest()
    return f"lmkit-heat-map-{digest[:8]}"

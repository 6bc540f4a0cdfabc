"""Writes a workspace to a file, which needs no account, and uploads it to W&B.

wandb_workspaces reads and writes workspaces only on W&B's servers. A file, and stable ids, need
private attributes of its classes. So pyproject.toml pins its minor version.
"""

from __future__ import annotations

import json
from pathlib import Path

import wandb
import wandb_workspaces.workspaces as ws
from wandb_workspaces.workspaces.internal import View

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_text
from lmkit.tracking import heat_map

SCHEMA_VERSION = 1
_CHART = {
    "name": heat_map.chart_name(),
    "display_name": heat_map.DISPLAY_NAME,
    "spec": heat_map.SPEC,
}


def write_workspace(path: Path, workspace: ws.Workspace) -> None:
    """Writes the workspace and the chart that it needs.

    The name that W&B gave the workspace in the file is kept: sending again changes it rather than
    duplicating it.

    Raises: UserError when the file cannot be written, or holds something else.
    """
    _take_name(workspace, path)
    content = {
        "schema_version": SCHEMA_VERSION,
        "chart": _CHART,
        "workspace": workspace._to_model().model_dump(
            mode="json", by_alias=True, exclude_none=True
        ),
    }
    replace_text(path, json.dumps(content, indent=1) + "\n")


def read_workspace(path: Path) -> ws.Workspace:
    """The workspace in a file. Raises: UserError naming the file when it is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
        return ws.Workspace._from_model(View.model_validate(content["workspace"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a sweep's workspace: {reason}") from None


def send(path: Path, workspace: ws.Workspace) -> str:
    """Sends the chart and the workspace, and writes the file; returns the address in W&B.

    Raises: UserError when W&B rejects them.
    """
    _take_name(workspace, path)
    try:
        api = wandb.Api()
        try:
            api.create_custom_chart(
                entity=workspace.entity, spec_type="vega2", access="private", **_CHART
            )
        except wandb.Error as error:  # W&B may have it already: its name identifies its content
            print(f"the chart {_CHART['name']} has not been made again: {error}")
        workspace.save()
    except (wandb.Error, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"W&B has rejected the workspace: {reason}; it needs an account: type python "
            f"-m wandb login"
        ) from None
    write_workspace(path, workspace)
    return str(workspace.url)


def _take_name(workspace: ws.Workspace, path: Path) -> None:
    """Takes over W&B's name of the workspace in the file, if that is of the same project."""
    if not path.exists():
        return
    sent = read_workspace(path)
    if (sent.entity, sent.project) == (workspace.entity, workspace.project):
        workspace._internal_name = workspace._internal_name or sent._internal_name
        workspace._internal_id = workspace._internal_id or sent._internal_id

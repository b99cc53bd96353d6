"""The folder of a simulation: replay.json, timeline.csv and report.html, or trials.csv and report.html of a tuning."""

from __future__ import annotations

import json
from pathlib import Path

from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.files import check_folder, write_together
from rightslice.core.replay import REPLAY_SCHEMA, Replay, Tuning
from rightslice.reporting.csv_text import TIMELINE_COLUMNS, TRIAL_COLUMNS, timeline_csv, trials_csv
from rightslice.reporting.html import SIMULATION, replay_html, trials_html

_REPLAY = ("replay.json", "timeline.csv", "report.html")
_TRIALS = ("trials.csv", "report.html")
_HEAD_BYTES = 4096


def check_replay_folder(folder: Path, *, tune: bool = False) -> None:
    """Raises BadInputError RS0407 where something that no simulation wrote would be written over."""
    check_folder(folder)
    for name in _TRIALS if tune else _REPLAY:
        path = folder / name
        if (path.exists() or path.is_symlink()) and not _ours(path):
            message = "is there, and no simulation wrote it"
            raise BadInputError(Diagnostic("RS0407", message, Location(str(path)), "choose another -o folder"))


def write_replay(found: Replay | Tuning, folder: Path) -> tuple[str, ...]:
    """All files or none; returns their names. Raises BadInputError when the folder cannot be written."""
    if isinstance(found, Tuning):
        files = {"trials.csv": trials_csv(found), "report.html": trials_html(found)}
    else:
        files = {
            "replay.json": to_json(found.record()),
            "timeline.csv": timeline_csv(found.timelines),
            "report.html": replay_html(found),
        }
    write_together(folder, files)
    return tuple(files)


def _ours(path: Path) -> bool:
    """Whether a simulation wrote the file that is there."""
    try:
        with path.open("rb") as handle:
            head = handle.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return False
    if path.name == "report.html":
        return f'<meta name="generator" content="{SIMULATION}">' in head
    if path.name == "replay.json":
        return f'"schema": {json.dumps(REPLAY_SCHEMA)}' in head
    columns = TIMELINE_COLUMNS if path.name == "timeline.csv" else TRIAL_COLUMNS
    return head.splitlines()[:1] == [",".join(columns)]

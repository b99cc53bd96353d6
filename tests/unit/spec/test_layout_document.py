from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.core.errors import BadInputError
from rightslice.spec.fields import Known
from rightslice.spec.layout import load_layout, parse_layout

LAYOUT = """\
apiVersion: rightslice/v1
kind: Layout
nodes:
  - name: gpu-node-1
    machine_type: a2-ultragpu-1g
    gpus:
      - accelerator: A100-SXM-80GB
        slots:
          - {partition: 3g.40gb, start: 0, model: asr, replica: 0}
          - {partition: 3g.40gb, start: 4, model: tts, replica: 0}
  - name: gpu-node-2
    machine_type: a2-ultragpu-1g
    gpus: [{accelerator: A100-SXM-80GB}]
"""


def test_a_layout_loads(tmp_path: Path) -> None:
    (tmp_path / "layout.yaml").write_text(LAYOUT)
    used, free = load_layout(tmp_path / "layout.yaml").nodes
    assert [(slot.partition, slot.start, slot.model) for slot in used.gpus[0].slots] == [
        ("3g.40gb", 0, "asr"),
        ("3g.40gb", 4, "tts"),
    ]
    assert free.gpus[0].slots == ()


@pytest.mark.parametrize(
    ("old", "new", "rule", "place"),
    [
        ("gpu-node-2", "gpu-node-1", "RS0301", (11, 11)),
        ("start: 4", "start: 0", "RS0301", (10, 41)),
        ("start: 4", "start: -1", "RS0106", (10, 41)),
        ("kind: Layout", "kind: Workload", "RS0203", (2, 7)),
        ("machine_type: a2-ultragpu-1g\n    gpus: [", "machine: a2\n    gpus: [", "RS0202", (11, 5)),
        ("accelerator: A100-SXM-80GB\n", "accelerator: A100\n", "RS0312", (7, 22)),
    ],
)
def test_mistakes_have_a_place(old: str, new: str, rule: str, place: tuple[int, int]) -> None:
    assert old in LAYOUT
    known = Known(accelerators=frozenset({"A100-SXM-80GB"}))
    with pytest.raises(BadInputError) as caught:
        parse_layout(LAYOUT.replace(old, new, 1), file="layout.yaml", known=known)
    first = caught.value.diagnostics[0]
    assert first.location is not None
    assert (first.rule, (first.location.line, first.location.column)) == (rule, place)

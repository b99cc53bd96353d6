"""The one YAML serialiser: equal objects give equal bytes, and a YAML 1.1 or 1.2 reader gets them back unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import yaml

from rightslice.kube.objects import Json

_FIRST: Final = (
    "apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "type", "replicas", "selector",
    "strategy", "template", "spec", "image", "command", "args", "env", "ports", "resources", "limits", "requests",
    "startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "securityContext", "volumeMounts", "key",
    "operator", "value", "effect", "data",
)  # fmt: skip
_RANK: Final = {key: rank for rank, key in enumerate(_FIRST)}

_MISREAD: Final = re.compile(
    r"[-+.]*[0-9][-+0-9a-fA-FxXoOtTzZ_.,: ]*|[-+]?\.(inf|nan)|y|n|yes|no|on|off|true|false|null|~|=|<<|", re.IGNORECASE
)
"""Plain scalars that some reader takes for a number, a date, a boolean, null or a merge key."""

_BLOCK: Final = re.compile(r"(?![ \n])(?:[\x20-\x7e]*(?<! )\n)+(?<!\n\n)")
"""Text that a literal block keeps exactly: printable lines without trailing spaces, one newline at the end."""


class _Dumper(yaml.CSafeDumper):
    """Block style without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Repeat equal parts instead of naming them."""
        return True


def _string(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if _MISREAD.fullmatch(text):
        style = '"'
    elif "\n" in text:
        style = "|" if _BLOCK.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _mapping(dumper: _Dumper, fields: Mapping[str, Json]) -> yaml.MappingNode:
    ordered = sorted(fields.items(), key=lambda field: (_RANK.get(field[0], len(_FIRST)), field[0]))
    return dumper.represent_mapping("tag:yaml.org,2002:map", ordered, flow_style=not fields)


_Dumper.add_representer(str, _string)
_Dumper.add_representer(dict, _mapping)


def dump(value: Json) -> str:
    """One YAML document with a final newline: known keys first in a fixed order, the rest by name, no anchors."""
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, default_flow_style=False, width=1_000_000)


def dump_all(values: Iterable[Json]) -> str:
    """Several documents in one stream, `---` between them."""
    return "---\n".join(dump(value) for value in values)

"""Where images and weights come from, for sites that reach neither registries nor the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HOST: Final = re.compile(r"[^/]*[.:][^/]*|localhost")


@dataclass(frozen=True, slots=True)
class Mirrors:
    """`registry_prefix`: in front of each image's path, in place of its registry. `hub_endpoint`: of a hub's mirror."""

    registry_prefix: str = ""
    hub_endpoint: str = ""

    def image(self, reference: str) -> str:
        """`docker.io/vllm/vllm-openai:v1` -> `registry.local/ai/vllm/vllm-openai:v1`."""
        if not self.registry_prefix:
            return reference
        host, slash, path = reference.partition("/")
        kept = path if slash and _HOST.fullmatch(host) else reference
        return f"{self.registry_prefix.rstrip('/')}/{kept}"


AS_PUBLISHED: Final = Mirrors()

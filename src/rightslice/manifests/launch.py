"""What an engine's container needs beside the plan's arguments; facts in `data/launch.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from rightslice.catalogue.versions import version_key


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """How one replica spans several nodes: from which version, with which arguments and address variable."""

    since: str
    arguments: tuple[str, ...]
    worker_arguments: tuple[str, ...]
    address_variable: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One engine's row."""

    command: tuple[str, ...] = ()
    positional: str = ""
    joined: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    cache_path: str = "/cache"
    hub_token: bool = False
    ready_timeout: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    shm_gib: int = 0
    mig_from: str = ""
    nodes: NodeGroup | None = None


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A variable that comes from a key of a secret."""

    secret: str
    key: str
    variable: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ImageRule:
    """What images with one start of their name need."""

    pull_secret: str
    key: SecretKey
    cache_path: str
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    shm_gib: int


HUB_TOKEN = SecretKey("huggingface-token", "token", "HF_TOKEN", optional=True)


@cache
def _data() -> dict[str, Any]:
    text = (files("rightslice.manifests") / "data" / "launch.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def launch(engine: str) -> Launch:
    """The row of an engine; an empty one where its image starts by itself."""
    row = _data()["engines"].get(engine, {})
    nodes = row.get("nodes")
    return Launch(
        command=tuple(row.get("command", ())),
        positional=row.get("positional", ""),
        joined=row.get("joined", True),
        environment=row.get("environment", {}),
        cache_path=row.get("cache_path", "/cache"),
        hub_token=row.get("hub_token", False),
        ready_timeout=row.get("ready_timeout", ""),
        ports=row.get("ports", {}),
        shm_gib=row.get("shm_gib", 0),
        mig_from=row.get("mig_from", ""),
        nodes=NodeGroup(nodes["from"], tuple(nodes["all"]), tuple(nodes["workers"]), nodes["address"])
        if nodes
        else None,
    )


def image_rule(image: str) -> ImageRule | None:
    """The rule of the longest matching start of the image's name."""
    matching = [(len(start), row) for row in _data()["images"] for start in row["starts"] if image.startswith(start)]
    if not matching:
        return None
    row = max(matching, key=lambda found: found[0])[1]
    return ImageRule(
        pull_secret=row["pull_secret"],
        key=SecretKey(**row["key"]),
        cache_path=row["cache_path"],
        environment=row["environment"],
        ports=row.get("ports", {}),
        shm_gib=row["shm_gib"],
    )


def at_least(version: str, minimum: str) -> bool:
    """Whether `version` is `minimum` or later; text without a number counts as newest."""
    return version_key(version) >= version_key(minimum)

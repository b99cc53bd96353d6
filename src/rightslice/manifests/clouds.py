"""What each platform needs to make node pools; facts and templates in `data/clouds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Purchase:
    """What one way to buy adds to the command."""

    options: str = ""
    disk: bool = True
    note: str = ""
    variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cloud:
    """One platform's templates."""

    variables: Mapping[str, tuple[str, str]]
    connect: str
    name_limit: int
    alphanumeric: bool
    create: tuple[str, ...]
    partition: str
    disk: str
    ami_type: Mapping[str, str]
    accelerator_names: str
    capacity: Mapping[str, Purchase]
    remove: str
    plain: tuple[str, ...]
    operator: tuple[str, ...]
    quota: bool
    operator_namespace: str
    cluster_policy: str
    account: str
    by_hand: str
    scaling: str
    scaling_note: str


@cache
def _data() -> dict[str, Any]:
    text = (files("rightslice.manifests") / "data" / "clouds.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def versions() -> Mapping[str, str]:
    """Versions of what the commands install."""
    found: dict[str, str] = _data()["versions"]
    return found


def cloud(platform: str) -> Cloud | None:
    """The templates of a platform; None where no commands are known."""
    row = _data()["platforms"].get(platform)
    if row is None:
        return None
    return Cloud(
        variables=_variables(row.get("variables", {})),
        connect=row["connect"],
        name_limit=row["pool_name"]["limit"],
        alphanumeric=row["pool_name"]["alphanumeric"],
        create=tuple(row["create"]),
        partition=row.get("partition", ""),
        disk=row.get("disk", ""),
        ami_type=row.get("ami_type", {}),
        accelerator_names=row.get("accelerator_names", ""),
        capacity={
            name: Purchase(
                found["options"], "disk" not in found, found.get("note", ""), _variables(found.get("variables", {}))
            )
            for name, found in row["capacity"].items()
        },
        remove=row["remove"],
        plain=tuple(row["software"]["plain"]),
        operator=tuple(row["software"]["operator"]),
        quota=row.get("quota", False),
        operator_namespace=row.get("operator", {}).get("namespace", "gpu-operator"),
        cluster_policy=row.get("operator", {}).get("policy", "cluster-policy"),
        account=row.get("account", ""),
        by_hand=row.get("by_hand", ""),
        scaling=row.get("scaling", {}).get("options", ""),
        scaling_note=row.get("scaling", {}).get("note", ""),
    )


def _variables(rows: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    return {name: (value, meaning) for name, (value, meaning) in rows.items()}

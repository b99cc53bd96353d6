"""Emitted trees, parsed: shared by the manifest tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from plans import EVERY
from rightslice.core.plan import Plan
from rightslice.manifests.render import render

Object = dict[str, Any]
WORKLOADS = ("Deployment", "LeaderWorkerSet")


@cache
def tree(name: str) -> Mapping[str, str]:
    """The files of one hand-made plan."""
    return render(EVERY[name]())


def objects(files: Mapping[str, str], path: str = "all.yaml") -> list[Object]:
    """The documents of one file."""
    return list(yaml.safe_load_all(files[path]))


def emitted(plan: Plan, kind: str) -> list[Object]:
    """The objects of one kind of a plan."""
    return [found for found in objects(render(plan)) if found["kind"] == kind]


def templates(found: Object) -> list[Object]:
    """The pod templates of a workload."""
    if found["kind"] == "Deployment":
        return [found["spec"]["template"]]
    group = found["spec"]["leaderWorkerTemplate"]
    return [group["leaderTemplate"], group["workerTemplate"]]


def pods(name: str) -> list[Object]:
    """Every pod template of one hand-made plan."""
    return [t for found in objects(tree(name)) if found["kind"] in WORKLOADS for t in templates(found)]


def server(template: Object) -> Object:
    """The one container of a pod."""
    containers: list[Object] = template["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]

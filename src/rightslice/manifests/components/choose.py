"""Which components a plan has, and which of them each overlay takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from rightslice.kube.objects import Json
from rightslice.manifests.components.component import Component
from rightslice.manifests.components.isolation import isolation
from rightslice.manifests.components.monitoring import managed_monitoring, monitoring
from rightslice.manifests.components.routes import routes
from rightslice.manifests.view import View

COMPONENTS_FOLDER: Final = "components"
OVERLAYS_FOLDER: Final = "overlays"


def components(view: View) -> tuple[Component, ...]:
    """Everything that an overlay may add to this plan."""
    found = (monitoring(view), managed_monitoring(view), routes(view), isolation(view))
    return tuple(made for made in found if made is not None)


@cache
def _data() -> Mapping[str, Any]:
    text = (files("rightslice.manifests") / "data" / "overlays.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def overlays() -> tuple[str, ...]:
    """Names of the overlays."""
    return tuple(_data())


def taken(overlay: str, made: tuple[Component, ...]) -> tuple[Component, ...]:
    """The components that an overlay takes, in the order of `made`."""
    return tuple(component for component in made if component.name in _data()[overlay]["components"])


def patches(overlay: str, made: tuple[Component, ...]) -> tuple[Json, ...]:
    """What an overlay changes of the components that it takes."""
    names = {component.name for component in taken(overlay, made)}
    return tuple(row["patch"] for row in _data()[overlay].get("patches", ()) if row["of"] in names)


def about(overlay: str) -> str:
    """What the README says of it."""
    text: str = _data()[overlay]["about"]
    return text

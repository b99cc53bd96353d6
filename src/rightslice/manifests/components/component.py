"""One addition that overlays choose."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.kube.objects import Object


@dataclass(frozen=True, slots=True)
class Component:
    """Objects in `components/NAME`. `about`: what they do; `needs`: what must be in the cluster before."""

    name: str
    about: str
    needs: str
    objects: tuple[Object, ...]

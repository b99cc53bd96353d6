"""Where cloud regions are, and how long the network between two of them takes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from rightslice.catalogue.datafiles import read_json

EARTH_RADIUS_KM: Final = 6371.0
FIBRE_KM_PER_S: Final = 299_792.458 * 2.0 / 3.0
_DATA: Final = "regions.json"


@lru_cache(maxsize=1)
def locations() -> dict[str, tuple[float, float]]:
    """Region -> latitude and longitude in degrees, of every provider that says where its regions are."""
    found = read_json(_DATA)["regions"]
    return {name: (place[0], place[1]) for regions in found.values() for name, place in regions.items()}


def located(provider: str, region: str) -> bool:
    """Whether that provider's region has a known place: two providers may use one name."""
    return region in read_json(_DATA)["regions"].get(provider, {})


def distance_km(one: str, other: str) -> float:
    """Great circle between two regions. Raises KeyError for a region without a known place."""
    places = locations()
    (lat1, lon1), (lat2, lon2) = ([math.radians(angle) for angle in places[name]] for name in (one, other))
    half = math.sin((lat2 - lat1) / 2.0) ** 2
    half += math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2.0) ** 2
    return 2.0 * EARTH_RADIUS_KM * math.asin(math.sqrt(half))


def round_trip_s(one: str, other: str) -> float | None:
    """There and back at two thirds of the speed of light, times the detour of published round trips (regions.json).

    A first-principles estimate, 0 within one region; None for a region without a known place.
    """
    if one == other:
        return 0.0
    if not {one, other} <= locations().keys():
        return None
    detour: float = read_json(_DATA)["detour"]["factor"]
    return 2.0 * distance_km(one, other) / FIBRE_KM_PER_S * detour

"""Exact bytes of a hub model's weights from the headers of its files, by ranged reads; never the tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rightslice.catalogue.architectures.reader import MAX_SHARDS, Stored, Tensor, read_object, stored_tensors
from rightslice.core.errors import BadInputError

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
TIMEOUT_S: Final = 10.0
DEADLINE_S: Final = 30.0
_AT_ONCE: Final = 8
_SUMMARY: Final = "stored.json"


def header_weights(model: str, folder: Path, layers: int) -> Stored | None:
    """What the weight files of `model` at the revision that names `folder` hold; kept beside the client's cache.

    None when the hub is off, does not answer ranged reads within DEADLINE_S, or has no safetensors files: the caller
    then has the total of the index. A header is at most 25 MB, the client's own limit.
    """
    from huggingface_hub import constants  # noqa: PLC0415 - only with the extra

    place = Path(constants.HF_ASSETS_CACHE) / "rightslice" / model.replace("/", "--") / folder.name / _SUMMARY
    if kept := _kept(place):
        return kept
    names = _files(folder)
    if constants.HF_HUB_OFFLINE or not names or len(names) > MAX_SHARDS:
        return None
    tensors = _tensors(model, folder.name, names)
    if tensors is None:
        return None
    found = stored_tensors(tensors, layers)
    with suppress(OSError):  # a cache that cannot be written is asked anew next time
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def _kept(place: Path) -> Stored | None:
    try:
        return Stored(**read_object(place)) if place.is_file() else None  # type: ignore[arg-type]
    except (BadInputError, TypeError):
        return None


def _files(folder: Path) -> list[str]:
    index = folder / INDEX
    if not index.is_file():
        return [SINGLE]
    listed = read_object(index).get("weight_map")
    return sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []


def _tensors(model: str, revision: str, names: list[str]) -> list[Tensor] | None:
    """Every tensor of the files; None as soon as one of them cannot be read in time."""
    from huggingface_hub import HfApi  # noqa: PLC0415 - only with the extra
    from huggingface_hub.errors import HfHubHTTPError, SafetensorsParsingError  # noqa: PLC0415
    from huggingface_hub.errors import HTTPError as LibraryError  # type: ignore[attr-defined] # noqa: PLC0415

    def one(name: str) -> list[Tensor]:
        metadata = HfApi().parse_safetensors_file_metadata(model, name, revision=revision, timeout=TIMEOUT_S)
        return list(_of_file(metadata))

    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        if not _ranges_work(model, revision, names[0]):
            return None
        done, late = wait([pool.submit(one, name) for name in names], DEADLINE_S)
        return None if late else [tensor for future in done for tensor in future.result()]
    except (HfHubHTTPError, SafetensorsParsingError, LibraryError, OSError, ValueError):
        return None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ranges_work(model: str, revision: str, name: str) -> bool:
    """Whether the hub sends the part that is asked for; one that sends whole files is not asked again."""
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 - only with the extra
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined] # noqa: PLC0415

    url = hf_hub_url(model, name, revision=revision)
    headers = {**build_hf_headers(), "range": "bytes=0-7"}
    with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
        return bool(response.status_code == _PARTIAL_CONTENT)


_PARTIAL_CONTENT: Final = 206


def _of_file(metadata: Any) -> Iterator[Tensor]:
    """Raises ValueError for offsets that make no sense."""
    for name, tensor in metadata.tensors.items():
        begin, end = tensor.data_offsets
        if not 0 <= begin <= end:
            raise ValueError(f"{name}: {begin} to {end}")
        yield name, str(tensor.dtype), int(tensor.parameter_count), int(end - begin)

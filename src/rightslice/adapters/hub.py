"""Model configurations from a Hugging Face style hub, kept in the hub client's cache.

Small JSON files, and of weight files only their headers: names, types and shapes of the tensors, by ranged reads.
The token comes from the environment or from the client's own login, and is never shown. HF_ENDPOINT names another hub,
HF_HUB_OFFLINE=1 keeps to the cache.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rightslice.catalogue.models import model_names
from rightslice.core.errors import BadInputError, Diagnostic, OutsideError, did_you_mean

CONFIG: Final = "config.json"
BESIDE: Final = ("hf_quant_config.json", "model.safetensors.index.json")
"""Read too where they exist: precisions, and the exact bytes of the weights."""
MAX_BYTES: Final = 64 * 2**20
TIMEOUT_S: Final = 10.0


def worth_asking(model: str) -> bool:
    """Whether it is an `owner/name` that the client (extra `hub`) can ask for, or has a copy of when offline."""
    if model.count("/") != 1 or find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import constants, try_to_load_from_cache  # noqa: PLC0415 - only with the extra
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # noqa: PLC0415

    try:
        validate_repo_id(model)
    except HFValidationError:
        return False
    return not constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(model, CONFIG), str)


def kept_off(model: str) -> BadInputError | None:
    """The error about an `owner/name` that only the hub could know while HF_HUB_OFFLINE forbids to ask; else None."""
    if model.count("/") != 1 or model.startswith((".", "/", "~")) or model.endswith(".json"):
        return None
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import constants  # noqa: PLC0415 - only with the extra

    if not constants.HF_HUB_OFFLINE:
        return None
    message = f'model "{model[:120]}" is neither in the catalogue nor in the hub\'s cache, and HF_HUB_OFFLINE is set'
    hint = "unset HF_HUB_OFFLINE, or give a folder or a config.json"
    near = did_you_mean(model, model_names())
    return BadInputError(Diagnostic("RS0310", message, None, f"{near} Else {hint}" if near else hint))


def fetch(model: str) -> Path:
    """The cached folder, named by its revision, of the configuration of `model`; weights are never downloaded.

    Raises BadInputError RS0310 when the hub has no such model, it is gated or has no configuration; OutsideError RS0601
    when the hub cannot be reached or fails.
    """
    from huggingface_hub import constants  # noqa: PLC0415 - only with the extra
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError  # noqa: PLC0415
    from huggingface_hub.errors import HTTPError as LibraryError  # type: ignore[attr-defined] # noqa: PLC0415

    try:
        return _cached(model) if constants.HF_HUB_OFFLINE else _downloaded(model)
    except GatedRepoError:
        hint = "accept its licence on the hub and set HF_TOKEN, or give a folder or a config.json"
        raise _unknown(model, "access to it is restricted", hint) from None
    except RepositoryNotFoundError:
        hint = did_you_mean(model, model_names()) or "set HF_TOKEN for private ones"
        raise _unknown(model, f"{constants.ENDPOINT} has no such model, or it is private", hint) from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no status")
        raise _unreachable(model, f"{constants.ENDPOINT} answered {status}") from None
    except (LibraryError, OSError) as error:
        raise _unreachable(model, f"{constants.ENDPOINT}: {type(error).__name__}") from None


def _downloaded(model: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415

    info = HfApi().model_info(model, timeout=TIMEOUT_S, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if CONFIG not in sizes:
        raise _unknown(model, f"it has no {CONFIG} on the hub", "give a folder or a config.json")
    wanted = [name for name in (CONFIG, *BESIDE) if name in sizes]
    for name in wanted:
        if sizes[name] > MAX_BYTES:
            raise _unknown(model, f"its {name} has {sizes[name]:,} bytes", "give a folder or a config.json")
    paths = [hf_hub_download(model, name, etag_timeout=TIMEOUT_S) for name in wanted]
    return Path(paths[0]).parent


def _cached(model: str) -> Path:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415

    return Path(hf_hub_download(model, CONFIG, local_files_only=True)).parent


def _unknown(model: str, why: str, hint: str = "") -> BadInputError:
    return BadInputError(Diagnostic("RS0310", f'model "{model}" is not in the catalogue: {why}', None, hint))


def _unreachable(model: str, what: str) -> OutsideError:
    message = f'model "{model}" is not in the catalogue, and the hub did not answer: {what}'
    hint = did_you_mean(model, model_names()) or "give a folder or a config.json"
    return OutsideError("RS0601", message, None, hint)

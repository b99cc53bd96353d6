"""Names that the API server, DNS and the cloud accept, whatever the plan calls things."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_DIGEST_LENGTH: Final = 6

_SERVICE_VARIABLES: Final = frozenset({"kubernetes", "vllm", "nim-server", "nim-http-api", "nim-grpc-api"})
"""A Service X injects X_PORT=tcp://… into every pod of its namespace; vLLM reads VLLM_PORT and NIM NIM_SERVER_PORT,
NIM_HTTP_API_PORT and NIM_GRPC_API_PORT as numbers and crash (vLLM and NIM environment variable pages)."""

_SYSTEM_NAMESPACES: Final = frozenset({"default", "gpu-operator", "nvidia-device-plugin", "lws-system"})


def slug(text: str) -> str:
    """Lower-case letters, digits and single dashes, starting with a letter; not unique and of any length."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain if plain[:1].isalpha() else f"n-{plain}".rstrip("-")


def safe_name(text: str, limit: int = 63) -> str:
    """`text` itself where it is a DNS-1035 label of at most `limit` characters, else a readable form with a digest.

    DNS-1035 (starts with a letter) is the strictest rule: a name that passes it fits every kind, Services included.
    Different texts get different names, the same text always the same one, and a safe name maps to itself.
    """
    if len(text) <= limit and _NAME.fullmatch(text):
        return text
    return _with_digest(slug(text), text, limit)


def _with_digest(readable: str, text: str, limit: int) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{readable[: limit - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"


def unique_names(texts: Iterable[str], limit: int = 63) -> dict[str, str]:
    """Each text -> its slug where that is short enough and no other text has it, else its slug with a digest."""
    wanted = list(dict.fromkeys(texts))
    slugs = [slug(text) for text in wanted]
    return {
        text: short if len(short) <= limit and slugs.count(short) == 1 else _with_digest(short, text, limit)
        for text, short in zip(wanted, slugs, strict=True)
    }


def alphanumeric_name(text: str, limit: int) -> str:
    """Lower-case letters and digits only, as Azure node pools want it; a digest where anything was lost."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    if plain == text and len(plain) <= limit and plain[:1].isalpha():
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    readable = plain if plain[:1].isalpha() else f"n{plain}"
    return readable[: limit - _DIGEST_LENGTH] + digest


def label_value(text: str) -> str:
    """`text` where it is a legal label value (63 characters of letters, digits, `-_.`), else its safe name."""
    return text if _LABEL_VALUE.fullmatch(text) else safe_name(text)


def service_name(text: str) -> str:
    """A safe name whose service environment variables no engine mistakes for its own settings."""
    name = safe_name(text)
    return f"{name}-model" if name in _SERVICE_VARIABLES else name


def namespace_name(text: str) -> str:
    """A safe name that is not a namespace of the system."""
    name = safe_name(text)
    return safe_name(f"inference-{name}") if name in _SYSTEM_NAMESPACES or name.startswith("kube-") else name

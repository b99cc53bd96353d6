"""What engine a container starts, and with which arguments: entry points, modules, shell commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import engines
from rightslice.kube.lint.values import dig, text
from rightslice.kube.lint.workloads import Container, Pod

_IMAGES: Final = (
    (re.compile(r"(?:^|[-_/.])vllm(?:$|[-_.])"), "vllm"),
    (re.compile(r"(?:^|[-_/.])sglang(?:$|[-_.])"), "sglang"),
    (re.compile(r"nvcr\.io/nim/"), "nim"),
    (re.compile(r"tensorrt-llm|tensorrtllm|trtllm|trt-llm"), "tensorrt-llm"),
    (re.compile(r"tritonserver"), "triton"),
    (re.compile(r"text-embeddings-inference"), "tei"),
    (re.compile(r"text-generation-inference"), "tgi"),
    (re.compile(r"llama\.cpp"), "llamacpp"),
    (re.compile(r"(?:^|/)ollama$"), "ollama"),
)  # fmt: skip
_NOT_SERVERS: Final = re.compile(
    r"router|exporter|proxy|gateway|operator|benchmark|bench|load|-cpu\b|stub|\bsim|simulator|client|ui$|webui|init|"
    r"download|mock|fake|controller|sidecar|epp|scheduler|model-puller|dashboard"
)
_MODULES: Final = {
    "vllm.entrypoints.openai.api_server": "vllm", "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang", "tensorrt_llm.commands.serve": "tensorrt-llm",
}  # fmt: skip
_PROGRAMS: Final = {
    "vllm": "vllm", "vllm-omni": "vllm", "sglang": "sglang", "trtllm-serve": "tensorrt-llm", "tritonserver": "triton",
    "text-embeddings-router": "tei", "text-generation-launcher": "tgi", "llama-server": "llamacpp", "ollama": "ollama",
}  # fmt: skip
_VLLM_FORMATS: Final = frozenset({"huggingface", "vllm"})
_PUBLISHED: Final = frozenset({"tritonserver", "release", "text-embeddings-inference", "text-generation-inference"})
_MAKERS: Final = frozenset({"vllm-openai", "vllm-omni", "sglang", "tritonserver", "text-generation-inference"})
_NUMBERED_APART: Final = frozenset({"vllm-omni"})
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_BREAKS: Final = frozenset({";", "&&", "||", "|", "&", "(", ")", "\n", "{", "}", "then", "do", "else", "if", "while"})
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)|\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}|\$([A-Za-z_]\w*)")
_VERSION: Final = re.compile(r"v?(\d+(?:\.\d+){1,3}(?:(?:\.post|rc|a|b)\d+)?)")
_MOST: Final = 1e9
_LONGEST: Final = 100_000
"""Characters of a script."""


@dataclass(frozen=True, eq=False)
class Server:
    """An engine in a container. `words`: its arguments behind the program; `opaque`: a script that was not read.

    `version` is empty where the image's tag does not say. `assigned`: variables set on its command line.
    """

    pod: Pod
    container: Container
    engine: str
    version: str
    words: tuple[str, ...]
    opaque: bool = False
    assigned: Mapping[str, str] = field(default_factory=dict)
    script: str = ""

    @cached_property
    def flags(self) -> Mapping[str, str]:
        """Common name -> value, later ones win; switches have an empty value."""
        spelled = engine_arguments(self.engine).names if self.engine in engines() else {}
        found: dict[str, str] = {}
        words = list(self.words)
        for index, word in enumerate(words):
            if not word.startswith("-") or re.fullmatch(r"-\d.*", word):
                continue
            flag, given, value = word.partition("=")
            if flag not in spelled and flag.startswith("--"):
                flag = f"--{flag[2:].replace('_', '-')}"
            if not given and index + 1 < len(words) and not re.match(r"-[A-Za-z-]", words[index + 1]):
                value = words[index + 1]
            found[spelled.get(flag, flag)] = value
        return found

    def number(self, flag: str) -> float | None:
        """The number that a flag is given; None for none, and for what no flag takes."""
        try:
            given = float(self.flags[flag])
        except (KeyError, ValueError):
            return None
        return given if 0.0 <= given <= _MOST else None

    @property
    def tensor_parallel(self) -> int:
        """As asked for; 1 where it is not."""
        asked = self.number("--tensor-parallel-size")
        return int(asked) if asked and asked >= 1 else 1

    @property
    def ranks(self) -> int:
        """GPUs of one replica: tensor times pipeline times data parallel."""
        sizes = [self.number(f"--{kind}-parallel-size") or 1 for kind in ("pipeline", "data")]
        return self.tensor_parallel * int(max(1, sizes[0])) * int(max(1, sizes[1]))

    @property
    def weight_ranks(self) -> int:
        """GPUs over which the weights are divided: data-parallel ones only with expert parallelism."""
        spread = {"--enable-expert-parallel", "--expert-parallel-size"} & set(self.flags)
        data = int(max(1, self.number("--data-parallel-size") or 1))
        return self.ranks if spread else max(1, self.ranks // data)

    @cached_property
    def model(self) -> str:
        """What it serves, as written; empty where that is not said."""
        for flag in ("--model", "--model-path", "--model-id", "--model_id", "-m"):
            if self.flags.get(flag):
                return self.flags[flag]
        if self.engine in ("vllm", "tensorrt-llm", "sglang") and self.words and not self.words[0].startswith("-"):
            return self.words[0]
        environment = self.container.environment
        names = ("MODEL_ID", "MODEL_NAME", "VLLM_MODEL", "HF_MODEL_ID", "MODEL", "NIM_MODEL_NAME", "MODEL_PATH")
        named = next((environment[name] for name in names if environment.get(name)), "")
        return named or self._kserve_model

    @property
    def _kserve_model(self) -> str:
        """What KServe fetches for it: `storageUri` of a predictor, `spec.model.uri` of an LLMInferenceService."""
        document = self.container.document
        if document.kind not in ("InferenceService", "LLMInferenceService"):
            return ""
        uri = text(self.container.value.get("storageUri")) or text(document.get("spec", "model", "uri"))
        return uri.removeprefix("hf://") if uri.startswith("hf://") else ""

    @property
    def port(self) -> int:
        """Where it serves HTTP."""
        asked = self.number("--port")
        if asked:
            return int(asked)
        known = engines().get(self.engine)
        return known.port if known else {"ollama": 11434, "tgi": 80}.get(self.engine, 0)


def server_of(pod: Pod, container: Container) -> Server | None:
    """The engine that a container starts; None where it starts none that is known."""
    by_image = "" if pod.document.kind.startswith("Ray") else image_engine(container.image) or _by_format(container)
    words = [substituted(word, container.environment) for word in container.command_words]
    started, opaque, assigned = _started(words, by_image)
    if started is None and not (by_image and (not container.value.get("command") or opaque)):
        return None
    engine, arguments = started or (by_image, [] if opaque else words)
    script = next((word for word in words if " " in word and len(word) < _LONGEST), "")
    return Server(pod, container, engine, image_version(container.image), tuple(arguments), opaque, assigned, script)


def _by_format(container: Container) -> str:
    """The engine behind KServe's runtime for a format of models."""
    name = text(dig(container.value, "modelFormat", "name")).casefold()
    return "vllm" if name in _VLLM_FORMATS and container.nvidia else ""


def image_engine(image: str) -> str:
    """The engine that an image is built around, by its name; empty for routers, exporters, CPU builds and the rest."""
    name = image.partition("@")[0]
    name, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    last = name.rpartition("/")[2].lower()
    if _NOT_SERVERS.search(last) or re.search(r"(?:^|[-_.])cpu(?:[-_.]|$)", tag):
        return ""
    return next((engine for pattern, engine in _IMAGES if pattern.search(last) or pattern.search(name.lower())), "")


def published(image: str) -> bool:
    """Whether it is an image of the engine's own makers, or a copy of it, whose ports and needs are known."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name in _MAKERS or "nvcr.io/" in image


def image_version(image: str) -> str:
    """`0.33.0` of `…:v0.33.0-cu129`; empty for `latest`, digests, tags without a version, and images of somebody's own,
    whose tags count something else."""
    last, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    match = _VERSION.match(tag)
    known = last in _PUBLISHED or "nvcr.io/nim/" in image or (match is not None and match[1].startswith("0."))
    return match[1] if match and known and last not in _NUMBERED_APART else ""


def substituted(word: str, environment: Mapping[str, str]) -> str:
    """With the variables that are known put in."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        return environment.get(name, match[3] if match[3] is not None else match[0])

    return _VARIABLE.sub(value, word) if "$" in word else word


def _started(words: Sequence[str], by_image: str) -> tuple[tuple[str, list[str]] | None, bool, Mapping[str, str]]:
    """((engine, arguments), whether a script decides, variables set in the command line)."""
    program = words[0].rpartition("/")[2] if words else ""
    if program in _SHELLS:
        if not any(re.fullmatch(r"-[a-z]*c", word) for word in words[1:3]):
            return None, True, {}
        at = next(i for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word))
        found, assigned = _in_script(words[at + 1] if at + 1 < len(words) else "")
        return found, False, assigned
    found = _launch(words)
    if found is None and program.endswith(".sh"):
        return None, True, {}
    if found is None and by_image == "nim" and not words:
        return None, False, {}
    return found, False, {}


def _in_script(script: str) -> tuple[tuple[str, list[str]] | None, Mapping[str, str]]:
    """The first simple command of a script that starts an engine."""
    if len(script) > _LONGEST:
        return None, {}
    joined = script.replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None, {}
    command: list[str] = []
    assigned: dict[str, str] = {}
    for token in [*tokens, ";"]:
        if token not in _BREAKS and set(token) - set(";&|()"):
            match = _ASSIGNED.fullmatch(token)
            if match and (not command or command == ["export"]):
                assigned[match[1]] = match[2]
            else:
                command.append(token)
            continue
        if found := _launch([substituted(word, assigned) for word in command]):
            return found, assigned
        command = []
    return None, assigned


def _launch(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """(engine, arguments) of a simple command: `vllm serve …`, `python3 -m vllm.entrypoints… …`."""
    for index, word in enumerate(words[:12]):
        program = word.rpartition("/")[2]
        if program == "-m" and index + 1 < len(words) and words[index + 1] in _MODULES:
            return _MODULES[words[index + 1]], list(words[index + 2 :])
        if program in _PROGRAMS and not word.startswith("-"):
            rest = list(words[index + 1 :])
            if program in ("vllm", "vllm-omni", "sglang", "ollama"):
                return (_PROGRAMS[program], rest[1:]) if rest[:1] == ["serve"] else None
            return _PROGRAMS[program], rest[1:] if rest[:1] == ["serve"] else rest
    return None

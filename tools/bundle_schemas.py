"""Schemas of built-in kinds and custom resources -> the one compressed file that `lint` reads.

    python tools/bundle_schemas.py CRD_SCHEMAS.json

Built-in kinds: the strict JSON schemas of the `kubernetes-validate` distribution. CRD_SCHEMAS.json: one object per
`group/version/Kind` with its openAPIV3Schema, as `controller-gen` writes it, descriptions removed.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate

VERSION = "1.37.0"
TARGET = Path(__file__).parents[1] / "src" / "rightslice" / "kube" / "data" / "schemas.json.gz"
KINDS = {
    "v1": "Pod Service ConfigMap Secret ServiceAccount PersistentVolumeClaim PersistentVolume Namespace LimitRange "
    "ResourceQuota ReplicationController",
    "apps/v1": "Deployment StatefulSet DaemonSet ReplicaSet",
    "batch/v1": "Job CronJob",
    "autoscaling/v1": "HorizontalPodAutoscaler",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "policy/v1": "PodDisruptionBudget",
    "networking.k8s.io/v1": "NetworkPolicy Ingress IngressClass",
    "scheduling.k8s.io/v1": "PriorityClass",
    "storage.k8s.io/v1": "StorageClass",
    "node.k8s.io/v1": "RuntimeClass",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "resource.k8s.io/v1": "ResourceClaim ResourceClaimTemplate DeviceClass",
}
DROPPED = {"description", "title", "$schema", "$id", "example", "default", "format"}
REFERENCE = "#/$defs/"


def main() -> int:
    """Write the bundle; equal inputs give equal bytes."""
    root = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}-local-strict"
    definitions = json.loads((root / "_definitions.json").read_text())["$defs"]
    kinds: dict[str, Any] = {}
    for version, names in KINDS.items():
        for kind in names.split():
            stem = "-".join(part.partition(".")[0] for part in version.split("/"))
            read = json.loads((root / f"{kind.lower()}-{stem}.json").read_text())
            kinds[f"{version}/{kind}"] = stripped(read)
    for name, row in json.loads(Path(sys.argv[1]).read_text()).items():
        kinds[name] = stripped(row["schema"])
        kinds[name].setdefault("properties", {})["metadata"] = {
            "$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        }
    used: dict[str, Any] = {}
    for schema in kinds.values():
        collect(schema, definitions, used)
    about = f"Built-in kinds of Kubernetes {VERSION} and custom resources; sources beside tests/data/crds."
    document = {"about": about, "kinds": kinds, "definitions": used}
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{len(kinds)} kinds, {len(used)} definitions, {TARGET.stat().st_size:,} bytes")
    return 0


def stripped(schema: Any) -> Any:
    """Without prose and without what only matters to patches."""
    if isinstance(schema, list):
        return [stripped(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    known = schema.get("properties", {})
    for key, part in schema.items():
        if key == "properties":
            made[key] = {name: stripped(inner) for name, inner in part.items()}
        elif key == "$ref":
            made[key] = part.rpartition("/")[2]
        elif key == "required":  # the API server fills in defaults before it looks
            made[key] = [name for name in part if "default" not in known.get(name, {})]
        elif key not in DROPPED and not (key.startswith("x-kubernetes-") and key not in KEPT):
            made[key] = stripped(part)
    return made


KEPT = {"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"}


def collect(schema: Any, definitions: Any, used: dict[str, Any]) -> None:
    """Every definition that `schema` refers to, directly or not."""
    if isinstance(schema, list):
        for part in schema:
            collect(part, definitions, used)
    elif isinstance(schema, dict):
        name = schema.get("$ref")
        if isinstance(name, str) and name not in used:
            used[name] = stripped(definitions[name])
            collect(used[name], definitions, used)
        for part in schema.values():
            collect(part, definitions, used)


if __name__ == "__main__":
    sys.exit(main())

"""Plan -> the files of `kubernetes/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Plan
from rightslice.kube.names import safe_name
from rightslice.kube.objects import Metadata, Object, identity, kustomization, kustomize_component, namespace, overlay
from rightslice.kube.writer import dump, dump_all
from rightslice.manifests.autoscalers import ADAPTER_VALUES, adapter_values
from rightslice.manifests.clouds import cloud
from rightslice.manifests.components.choose import (
    COMPONENTS_FOLDER,
    OVERLAYS_FOLDER,
    components,
    overlays,
    patches,
    taken,
)
from rightslice.manifests.evaluate import EVALUATION_FOLDER, evaluations
from rightslice.manifests.mirrors import AS_PUBLISHED, Mirrors
from rightslice.manifests.partitions import critical_pods_quota, mig_config_map
from rightslice.manifests.readme import readme
from rightslice.manifests.resolve import resolve
from rightslice.manifests.sharing import sharing_config_map
from rightslice.manifests.view import View, plan_labels
from rightslice.manifests.workloads import model_objects

OPERATOR_FOLDER = "gpu-operator"


def render(plan: Plan, mirrors: Mirrors = AS_PUBLISHED) -> Mapping[str, str]:
    """Every file below `kubernetes/` by its path there: README.md, kustomizations, objects, `all.yaml`.

    A plan over several clusters has one folder per cluster. Raises InfeasibleError where there is nothing to deploy and
    BadInputError with every reason why the plan cannot be written down.
    """
    view = resolve(plan, mirrors)
    files: dict[str, str] = {"README.md": readme(view)}
    for cluster in view.clusters:
        folder = view.folder(cluster)
        files |= {folder + path: text for path, text in _tree(view.restricted(cluster)).items()}
    return dict(sorted(files.items()))


def _tree(view: View) -> dict[str, str]:
    """The files of one cluster."""
    per_model = {model.name: model_objects(units) for model in view.plan.models if (units := view.of_model(model))}
    operator = _operator_objects(view)
    _refuse_duplicates([*(made for objects in per_model.values() for made in objects), *operator])
    base: dict[str, Object] = {"namespace.yaml": _namespace(view)}
    for name, objects in per_model.items():
        base |= {f"{safe_name(name)}/{file}": made for file, made in _named(objects).items()}
    files = {f"base/{path}": dump(made) for path, made in base.items()}
    files["base/kustomization.yaml"] = dump(kustomization(list(base), _images(view)))
    if operator:
        files |= {f"{OPERATOR_FOLDER}/{path}": dump(made) for path, made in _named(operator).items()}
        files[f"{OPERATOR_FOLDER}/kustomization.yaml"] = dump(kustomization(list(_named(operator))))
    planned = ["base", *([OPERATOR_FOLDER] if operator else [])]
    files["kustomization.yaml"] = dump(kustomization(planned))
    files |= _additions(view, planned)
    if values := adapter_values(view):
        files[ADAPTER_VALUES] = dump(values)
    for name, objects in evaluations(view).items():
        files[f"{EVALUATION_FOLDER}/{safe_name(name)}.yaml"] = dump_all(objects)
    files["all.yaml"] = dump_all([*base.values(), *operator])
    return files


def _additions(view: View, planned: Sequence[str]) -> dict[str, str]:
    """`components/` and the `overlays/` that take them."""
    made = components(view)
    found: dict[str, str] = {}
    for component in made:
        named, folder = _named(component.objects), f"{COMPONENTS_FOLDER}/{component.name}"
        found |= {f"{folder}/{file}": dump(each) for file, each in named.items()}
        found[f"{folder}/kustomization.yaml"] = dump(kustomize_component(list(named)))
    for name in overlays():
        added = [f"../../{COMPONENTS_FOLDER}/{component.name}" for component in taken(name, made)]
        whole = overlay([f"../../{part}" for part in planned], added, patches(name, made))
        found[f"{OVERLAYS_FOLDER}/{name}/kustomization.yaml"] = dump(whole)
    return found


def _namespace(view: View) -> Object:
    """`baseline` keeps privileged pods and host paths out; `restricted` would refuse the root user of public images."""
    guard = {"pod-security.kubernetes.io/enforce": "baseline"}
    return namespace(Metadata(view.namespace, labels={**plan_labels(view.plan.name), **guard}))


def _operator_objects(view: View) -> list[Object]:
    found = [mig_config_map(view), sharing_config_map(view)]
    if any(made.quota for pool in view.pools if (made := cloud(pool.pool.platform))):
        found.append(critical_pods_quota(view))
    return [made for made in found if made]


def _images(view: View) -> list[dict[str, str]]:
    """Where the reader sets the images that the plan does not know."""
    names = [unit.image.rpartition(":") for unit in view.units if unit.needs_image]
    return [{"name": name, "newName": name, "newTag": tag} for name, _, tag in dict.fromkeys(names)]


def _named(objects: Sequence[Object]) -> dict[str, Object]:
    """`deployment.yaml`; `deployment-NAME.yaml` where a folder has several of a kind."""
    kinds = [identity(made).kind for made in objects]
    files: dict[str, Object] = {}
    for made in objects:
        kind, name = identity(made).kind, identity(made).name
        files[f"{kind.lower()}.yaml" if kinds.count(kind) == 1 else f"{kind.lower()}-{name}.yaml"] = made
    return files


def _refuse_duplicates(objects: Sequence[Object]) -> None:
    names = [identity(made) for made in objects]
    doubled = sorted({f'{found.kind} "{found.name}"' for found in names if names.count(found) > 1})
    if doubled:
        raise BadInputError([Diagnostic("RS0301", f"two objects would be {name}") for name in doubled])

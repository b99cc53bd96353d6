"""The tree as a whole: it hangs together, it is complete, and its page can be followed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
import yaml
from emitted import Object, objects, tree

from plans import EVERY, custom_memory, large_llm, voice
from rightslice.core.documents import to_json
from rightslice.core.plan import Plan
from rightslice.kube.objects import identity
from rightslice.manifests.render import render
from rightslice.spec.plan_document import parse_plan


def resolved(files: dict[str, str], folder: str = "") -> list[Object]:
    """What a kustomization gathers; KeyError for a resource that is not there."""
    gathered: list[Object] = []
    for resource in yaml.safe_load(files[f"{folder}kustomization.yaml"])["resources"]:
        path = str(PurePosixPath(folder) / resource)
        gathered += objects(files, path) if path.endswith(".yaml") else resolved(files, f"{path}/")
    return gathered


@pytest.mark.parametrize("name", sorted(EVERY))
def test_kustomization_and_stream_hold_the_same_objects_once(name: str) -> None:
    files = dict(tree(name))
    gathered, streamed = resolved(files), objects(files)
    names = [identity(found) for found in streamed]
    assert len(set(names)) == len(names)
    assert sorted(map(to_json, gathered)) == sorted(map(to_json, streamed))
    planned = {path for path in files if not path.startswith(("components/", "overlays/"))}
    listed = {path for path in planned if path.endswith(".yaml") and not path.endswith("kustomization.yaml")}
    assert len(listed - {"all.yaml"}) == len(streamed)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_same_plan_same_bytes_also_through_its_document(name: str) -> None:
    plan = EVERY[name]()
    assert render(plan) == render(EVERY[name]())
    assert render(parse_plan(to_json(plan), file="plan.json")) == render(plan)


def check_commands(page: str) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    for block in blocks:
        subprocess.run(["bash", "-n"], input=block, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_command_of_the_page_is_shell(name: str) -> None:
    check_commands(tree(name)["README.md"])


@pytest.mark.parametrize("name", sorted(EVERY))
def test_pools_of_the_page_carry_the_labels_that_pods_select(name: str) -> None:
    page = tree(name)["README.md"]
    for found in objects(tree(name)):
        if found["kind"] == "Deployment":
            wanted = found["spec"]["template"]["spec"]["nodeSelector"]["rightslice/pool"]
            assert f"rightslice/pool={wanted}" in page


def test_no_secret_has_a_value_and_every_reference_is_explained() -> None:
    for name in EVERY:
        assert not [found for found in objects(tree(name)) if found["kind"] == "Secret"]
        for wanted in re.findall(r"secretKeyRef:\n\s+name: (\S+)", tree(name)["all.yaml"]):
            assert f" {wanted} " in tree(name)["README.md"]
    assert "create secret docker-registry ngc-registry" in tree("voice")["README.md"]


def test_what_must_be_asked_for_and_watched_is_on_the_page() -> None:
    page = tree("voice")["README.md"]
    assert "- [ ] quota: gcp us-central1 A100-SXM-80GB, 2 GPUs" in page
    assert "RS5007 llm: a single replica" in page
    assert "a root disk of 450 GB" in tree("large-llm")["README.md"]


def test_an_unknown_image_is_set_in_one_place() -> None:
    files = tree("custom-memory")
    (entry,) = yaml.safe_load(files["base/kustomization.yaml"])["images"]
    assert entry == {"name": "example.invalid/big", "newName": "example.invalid/big", "newTag": "set-me"}
    assert "image: example.invalid/big:set-me" in files["base/big/deployment.yaml"]
    assert "Set the image of big in `base/kustomization.yaml`" in files["README.md"]


def two_clouds() -> Plan:
    first, second = large_llm(), custom_memory()
    return replace(
        first,
        pools=(*first.pools, *second.pools),
        models=(*first.models, *second.models),
        placements=(*first.placements, *second.placements),
    )


def test_a_plan_over_two_clusters_has_a_tree_for_each() -> None:
    files = dict(render(two_clouds()))
    for folder, kept, left in (("aws-us-east-1-eks/", "chat", "big"), ("azure-eastus-aks/", "big", "chat")):
        gathered = resolved(files, folder)
        assert sorted(map(to_json, gathered)) == sorted(map(to_json, objects(files, f"{folder}all.yaml")))
        names = {identity(found).name for found in gathered}
        assert kept in names
        assert left not in names
        assert f"kubectl apply --server-side -k {folder}base" in files["README.md"]
    assert "kustomization.yaml" not in files


def test_hostile_names_stay_text() -> None:
    plan = voice()
    evil = 'x\n---\nkind: Secret # ${HOME} `id` $(HF_TOKEN) "| <img src=x>'
    models = tuple(replace(m, name=evil + m.name, task=evil) for m in plan.models)
    pools = tuple(replace(p, machine_type=f"{evil}; rm -rf /", region=evil) for p in plan.pools)
    files = render(replace(plan, name=evil, models=models, pools=pools))
    kinds = {found["kind"] for found in objects(files)}
    assert kinds == {found["kind"] for found in objects(tree("voice"))}
    for found in objects(files):
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", identity(found).name)
    assert "\n---\nkind: Secret" not in files["README.md"]
    prose = re.sub(r"^```sh$.*?^```$", "", files["README.md"], flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<img", prose)
    check_commands(files["README.md"])
    assert all(re.fullmatch(r"[a-z0-9/.-]+|README\.md", path) for path in files)

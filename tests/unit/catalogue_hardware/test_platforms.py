"""Platforms: resource names, labels, and layouts that each can make."""

from __future__ import annotations

import pytest

from rightslice.catalogue.accelerators import accelerator
from rightslice.catalogue.hardware import WHOLE
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import layouts
from rightslice.catalogue.platforms import default_platform, default_platform_note, platforms


@pytest.mark.parametrize(
    ("platform", "partition", "resource"),
    [
        ("gke", WHOLE, "nvidia.com/gpu"),
        ("gke", "1g.10gb", "nvidia.com/gpu"),
        ("gke+operator", "1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("eks", "3g.40gb", "nvidia.com/mig-3g.40gb"),
        ("on-prem", "1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("on-prem", WHOLE, "nvidia.com/gpu"),
        ("on-prem", "time-slicing", "nvidia.com/gpu.shared"),
        ("aks", "1g.10gb", "nvidia.com/gpu"),
    ],
)
def test_resource_names_follow_the_mig_strategy(platform: str, partition: str, resource: str) -> None:
    assert platforms()[platform].gpu_resource(partition) == resource


def test_other_vendors_have_their_own_resource_or_none() -> None:
    assert platforms()["aks"].gpu_resource(WHOLE, "amd") == "amd.com/gpu"
    with pytest.raises(KeyError):
        platforms()["gke"].gpu_resource(WHOLE, "google")


@pytest.mark.parametrize(
    ("platform", "name", "machine_type", "value"),
    [
        ("gke", "A100-SXM-80GB", "a2-ultragpu-1g", "nvidia-a100-80gb"),
        ("gke", "T4", "n1-standard-8+1xT4", "nvidia-tesla-t4"),
        ("gke", "H100-SXM-80GB", "a3-highgpu-8g", "nvidia-h100-80gb"),
        ("gke", "H100-SXM-80GB", "a3-megagpu-8g", "nvidia-h100-mega-80gb"),
        ("gke", "TPU-v6e", "ct6e-standard-4t", ""),
        ("on-prem", "A100-PCIe-80GB", "any", "NVIDIA-A100-80GB-PCIe"),
        ("gke+operator", "L4", "g2-standard-8", "NVIDIA-L4"),
        ("eks", "A10G", "g5.xlarge", "g5.xlarge"),
        ("aks", "A100-PCIe-80GB", "Standard_NC24ads_A100_v4", "Standard_NC24ads_A100_v4"),
        ("on-prem", "MI300X", "any", ""),
    ],
)
def test_label_values(platform: str, name: str, machine_type: str, value: str) -> None:
    assert platforms()[platform].label_value(name, machine_type) == value


def test_every_nvidia_machine_of_a_managed_platform_can_be_selected() -> None:
    for m in machines():
        if m.managed_kubernetes in platforms() and accelerator(m.accelerator).vendor == "nvidia":
            platform = platforms()[default_platform(m.provider)]
            assert platform.label_value(m.accelerator, m.machine_type), m


def test_labels_of_one_machine_do_not_select_another_card() -> None:
    gke = platforms()["gke"]
    assert gke.node_label_values("H100-SXM-80GB", "a3-highgpu-8g") == ("nvidia-h100-80gb",)
    assert "Tesla-T4" in platforms()["on-prem"].node_label_values("T4", "any")


def test_pools_of_one_profile_cannot_mix_slices() -> None:
    made = platforms()["gke"].layouts("A100-SXM-80GB")
    assert {layout.name for layout in made} == {"1g.10gb*7", "2g.20gb*3", "3g.40gb*2", "4g.40gb", "7g.80gb"}
    assert "1g.20gb" not in platforms()["aks"].partitions("H100-SXM-80GB")
    assert platforms()["gke"].layouts("A30") == ()


def test_the_operator_makes_every_layout_and_auto_mode_none() -> None:
    for name in ("eks", "on-prem", "openshift", "gke+operator"):
        assert platforms()[name].layouts("H100-SXM-80GB") == layouts("H100-SXM-80GB")
    assert platforms()["eks-auto"].layouts("H100-SXM-80GB") == ()
    assert platforms()["on-prem"].partitions("A30") == ("1g.6gb", "2g.12gb", "4g.24gb")
    assert platforms()["on-prem"].layouts("L4") == ()


@pytest.mark.parametrize(
    ("provider", "platform"),
    [("gcp", "gke"), ("aws", "eks"), ("azure", "aks"), ("on-prem", "on-prem"), ("lambda", "on-prem")],
)
def test_default_platforms(provider: str, platform: str) -> None:
    assert default_platform(provider) == platform
    assert bool(default_platform_note(provider)) == (provider == "lambda")
    assert platforms()[platform].provider == (provider if provider != "lambda" else "on-prem")


def test_spot_notice_and_provisioning_times_are_known_where_published() -> None:
    assert {n: p.spot_notice_s for n, p in platforms().items() if p.provider != "on-prem"} == {
        "gke": 30, "gke+operator": 30, "eks": 120, "eks-auto": 120, "aks": 30,
    }  # fmt: skip
    assert platforms()["gke"].node_provisioning_s == (180, 480)
    assert platforms()["eks"].node_provisioning_s is None
    assert all(p.evidence["mig"].source and p.evidence["mig"].check for p in platforms().values())


def test_profiles_of_a_platform_exist_on_the_accelerator() -> None:
    for platform in platforms().values():
        for name, profiles in platform.mig_profiles.items():
            assert set(platform.partitions(name)) == set(profiles), (platform.name, name)

"""Accelerators: memory that an engine sees, names, and slices."""

from __future__ import annotations

import pytest

from rightslice.catalogue.accelerators import (
    ASSUMED_VISIBLE_SHARE,
    accelerator,
    accelerators,
    device,
    resolve_accelerator,
    resolve_device,
)
from rightslice.catalogue.hardware import WHOLE

MIB = 2**20


def test_printed_memory_is_planned_on_and_not_the_nominal() -> None:
    h100 = accelerator("H100-SXM-80GB")
    assert (h100.visible_memory_bytes, h100.visible_assumed) == (81082 * MIB, False)
    assert h100.advertised_memory_bytes == 80 * 2**30
    assert h100.flops["bf16"] == pytest.approx(989e12)
    assert h100.memory_bandwidth_bytes_per_s == pytest.approx(3350e9)
    assert (h100.link_bytes_per_s, h100.pcie_bytes_per_s) == (900e9, 63e9)


@pytest.mark.parametrize(
    ("name", "visible_mib"),
    [
        ("GB200", round(189471 * ASSUMED_VISIBLE_SHARE)),  # nvidia-smi known
        ("MI325X", round(256 * 1024 * ASSUMED_VISIBLE_SHARE)),  # nominal only
        ("T4G", 15079),  # the T4 of Arm hosts: inline ECC takes 8 %
    ],
)
def test_memory_that_nobody_printed_is_assumed_and_says_so(name: str, visible_mib: int) -> None:
    item = accelerator(name)
    assert item.visible_assumed
    assert item.visible_memory_bytes == visible_mib * MIB


def test_every_row_is_complete_enough_to_plan_memory_and_bandwidth() -> None:
    assert len(accelerators()) == 72
    for item in accelerators().values():
        assert 0.9 * item.visible_memory_bytes < item.advertised_memory_bytes
        assert item.visible_memory_bytes <= item.advertised_memory_bytes
        assert item.source


def test_a_unit_that_is_not_there_has_no_rate() -> None:
    assert "bf16" not in accelerator("T4").flops
    assert "fp8" not in accelerator("A100-SXM-80GB").flops
    assert accelerator("RTX-PRO-4500").flops == {}


def test_chip_to_chip_links_are_shared_and_counted_one_way() -> None:
    assert accelerator("GB200").pcie_bytes_per_s == 225e9
    assert accelerator("GH200-96GB").pcie_bytes_per_s == 450e9


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        ("a100-sxm-80gb", "", "A100-SXM-80GB"),
        ("nvidia-l4", "gke", "L4"),
        ("NVIDIA A100-SXM4-80GB", "device", "A100-SXM-80GB"),
        ("A100-SXM4-80GB", "gfd", "A100-SXM-80GB"),
        ("NVIDIA-H200-MIG-3g.71gb", "gfd", "H200-SXM-141GB"),
        ("H100-SXM-80GB:MIG-3g.40gb", "", "H100-SXM-80GB"),
        ("H100", "", None),  # the SXM card for some, the NVL card for Azure NC
        ("a100", "karpenter", None),  # 40 or 80 GB
        ("V100", "", None),
        ("H100", "skypilot", "H100-SXM-80GB"),
        ("RTX 9090", "", None),
        ("", "", None),
    ],
)
def test_spellings_resolve_or_are_left_alone(text: str, namespace: str, expected: str | None) -> None:
    assert resolve_accelerator(text, namespace) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A100-SXM-80GB", ("A100-SXM-80GB", WHOLE)),
        ("A100-SXM-80GB:MIG-3g.40gb", ("A100-SXM-80GB", "3g.40gb")),
        ("A100-SXM-80GB:MIG-3g.71gb", None),
        ("H200-SXM-141GB:MIG-18GB", ("H200-SXM-141GB", "1g.18gb")),
        ("H200-NVL-141GB:MIG-71GB", None),  # 3g.71gb or 4g.71gb
        ("L4:MIG-1g.10gb", None),
    ],
)
def test_devices_are_read_from_their_written_form(text: str, expected: tuple[str, str] | None) -> None:
    assert resolve_device(text) == expected


def test_a_slice_has_its_own_memory_bandwidth_and_units_and_no_link() -> None:
    whole, part = device("H100-SXM-80GB"), device("H100-SXM-80GB", "3g.40gb")
    assert part.memory_bytes == round(39.5 * 2**30)
    assert part.sm_count == 60
    assert part.sm_share == pytest.approx(60 / 132)
    assert part.flops["fp8"] == pytest.approx(whole.flops["fp8"] * 60 / 132)
    assert part.memory_bandwidth_bytes_per_s == pytest.approx(whole.memory_bandwidth_bytes_per_s / 2)
    assert (whole.link_bytes_per_s, part.link_bytes_per_s) == (900e9, 0.0)
    assert part.name == "H100-SXM-80GB:MIG-3g.40gb"


def test_a_whole_a100_in_mig_mode_has_fewer_multiprocessors() -> None:
    assert (device("A100-SXM-80GB").sm_count, device("A100-PCIe-80GB", "7g.80gb").sm_count) == (108, 98)


def test_bandwidth_follows_the_memory_units_of_the_table() -> None:
    """RTX PRO 6000 counts twelve units, not eight."""
    whole, part = device("RTX-PRO-6000"), device("RTX-PRO-6000", "1g.24gb")
    assert part.memory_bandwidth_bytes_per_s == pytest.approx(whole.memory_bandwidth_bytes_per_s / 4)


@pytest.mark.parametrize(("name", "partition"), [("H999", WHOLE), ("L4", "1g.10gb"), ("H100-SXM-80GB", "1g.5gb")])
def test_unknown_names_raise_key_error(name: str, partition: str) -> None:
    with pytest.raises(KeyError):
        device(name, partition)

"""Laws of single operators against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.catalogue.accelerators import device
from rightslice.performance import coefficients, operators
from rightslice.performance.coefficients import AttentionPath, Link, MatrixPath, Routing

PATH = MatrixPath(flops_per_s=1e12, bytes_per_s=1e9, weight_bytes=2.0, norm=1.0)


def test_roofline_is_the_larger_term_for_a_large_norm_and_the_sum_for_one() -> None:
    compute, memory = np.array([3.0, 0.0]), np.array([4.0, 0.0])
    assert operators.roofline_s(compute, memory, 1.0).tolist() == [7.0, 0.0]
    assert operators.roofline_s(compute, memory, 2.0)[0] == pytest.approx(5.0)
    assert operators.roofline_s(compute, memory, 64.0)[0] == pytest.approx(4.0, rel=1e-6)


def test_linear_reads_weights_once_and_computes_per_token() -> None:
    times = operators.linear_s(np.array([1.0, 1001.0]), 1e6, PATH)
    assert times[0] == pytest.approx(2e-3 + 2e-6)
    assert times[1] - times[0] == pytest.approx(2e-3)


def test_few_pairs_touch_few_experts_and_many_touch_all() -> None:
    touched = operators.experts_touched(np.array([1.0, 64.0, 1e6]), 64.0, 1e6)
    assert touched[0] == pytest.approx(1.0, rel=0.01)
    assert touched[1] == pytest.approx(64 * (1 - np.exp(-1)))
    assert touched[2] == pytest.approx(64.0)


def test_popular_experts_leave_others_untouched() -> None:
    uneven = operators.experts_touched(np.array([1.0, 64.0, 1e9]), 64.0, 1.0)
    assert uneven[0] == pytest.approx(1.0, rel=0.02)
    assert uneven[1] == pytest.approx(32.0)
    assert uneven[2] == pytest.approx(64.0, rel=1e-3)


def test_experts_read_only_what_they_touch() -> None:
    one, all_of_them = operators.experts_s(np.array([1.0, 640.0]), 64.0, 1e6, PATH, Routing(0.0, 1e6))
    assert one == pytest.approx(2e-3, rel=0.02)
    assert all_of_them == pytest.approx(64 * 2e-3 + 640 * 2e-6, rel=0.02)


def test_a_touched_expert_computes_a_whole_tile() -> None:
    bare, padded = (
        operators.experts_s(np.array([1e6]), 64.0, 1e6, PATH, Routing(rows, 1e6))[0] for rows in (0.0, 100.0)
    )
    assert padded - bare == pytest.approx(64 * 100 * 2e-6)


def test_all_reduce_changes_algorithm_with_size() -> None:
    link = Link(4, 5e-6, 200e9, 20e-6, 200e9)
    small, large, none = operators.all_reduce_s(np.array([1e4, 1e8, 0.0]), link)
    assert small == pytest.approx(5e-6 + 1e4 * 3 / 200e9)
    assert large == pytest.approx(20e-6 + 2 * 1e8 * 3 / (4 * 200e9))
    assert none == 0.0


def test_decode_attention_is_bound_by_bytes_or_by_arithmetic() -> None:
    path = AttentionPath(flops_per_s=1e12, bytes_per_s=1e9, kv_bytes=2.0)
    assert operators.decode_attention_s(1000, 1000, path) == pytest.approx(2e-6)
    assert operators.decode_attention_s(1, 1e6, path) == pytest.approx(2e-6)


@pytest.mark.parametrize(("nbytes", "measured_us"), [(131_072, 25.5), (4_194_304, 63.8), (67_108_864, 414.5)])
def test_gather_and_scatter_as_measured_on_eight_h100(nbytes: int, measured_us: float) -> None:
    """NCCL all_gather + reduce_scatter of the operator tables (AIConfigurator core 0.12.0)."""
    link = coefficients.link(device("H100-SXM-80GB"), "vllm", 8)
    predicted = float(operators.gather_and_scatter_s(np.array([float(nbytes)]), link)[0])
    assert predicted * 1e6 == pytest.approx(measured_us, rel=0.25)
    assert float(operators.gather_and_scatter_s(np.zeros(1), link)[0]) == 0.0

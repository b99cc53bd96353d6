"""Cold starts: published figures, their sources, what is unknown, and draws."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rightslice.catalogue.cold_start import (
    engine_phases,
    image_bytes,
    image_pull,
    node_provisioning,
    phase,
    startup_budget,
    weight_load,
    weight_sources,
)
from rightslice.catalogue.datafiles import DATA
from rightslice.catalogue.platforms import platforms
from rightslice.core.rng import generator
from rightslice.core.spread import Spread
from rightslice.simulation.control.cold_start import ON_NODE, PULL, StartRequest, cold_start

LLAMA_8B_BYTES = 16.06e9


def test_every_point_names_a_source_and_every_source_is_used() -> None:
    document = json.loads((DATA / "cold_start.json").read_text())
    used: set[str] = {document["startup_budget"]["source"]}

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if "points" in value:
                used.update(point["source"] for point in value["points"])
            for inner in value.values():
                walk(inner)

    walk(document)
    assert used == set(document["sources"])


def test_rates_come_from_bytes_over_seconds() -> None:
    streamer = weight_load("object-store-streamer")
    assert streamer.bytes_per_s is not None
    assert streamer.bytes_per_s.high == pytest.approx(15e9 / 4.88)
    seconds = streamer.seconds(30e9)
    assert seconds is not None
    assert seconds.low == pytest.approx(9.76)
    assert seconds.high == pytest.approx(56.48)


def test_a_streamed_image_takes_the_same_whatever_its_size() -> None:
    assert image_pull("streamed").seconds(1e9) == image_pull("streamed").seconds(30e9) == Spread.fixed(20.0)
    assert image_pull("preloaded").seconds(30e9) == Spread.fixed(0.0)


def test_cached_kernels_start_sooner() -> None:
    cold, assumed = engine_phases("vllm", kernel_cache=False)
    warm, _ = engine_phases("vllm", kernel_cache=True)
    assert not assumed
    assert cold["compile"].spread is not None
    assert warm["compile"].spread is not None
    assert warm["compile"].spread.high < cold["compile"].spread.typical


def test_node_provisioning_is_the_platforms_own_where_there_is_one() -> None:
    gke, eks = node_provisioning("gke").spread, node_provisioning("eks").spread
    assert platforms()["gke"].node_provisioning_s == (180, 480)
    assert (gke, eks) == (Spread(180, 330, 480), Spread(76, 300, 900))
    assert node_provisioning("on-prem").spread is None


def test_no_figure_is_made_up() -> None:
    assert weight_load("local-ssd").seconds(1e9) is None
    assert image_bytes("triton").spread is None
    assert phase("mig_reboot").spread is None
    assert "local-ssd" in weight_sources()
    for wrong in (lambda: phase("node"), lambda: weight_load("tape"), lambda: image_pull("fast")):
        with pytest.raises(KeyError):
            wrong()


def test_budget_is_beyond_the_typical_start() -> None:
    budget = startup_budget()
    typical = cold_start(StartRequest("gke", "vllm", LLAMA_8B_BYTES)).typical(skip=ON_NODE | PULL).total_s
    assert LLAMA_8B_BYTES / budget.weights_bytes_per_s + budget.engine_s > typical


def test_phases_of_a_start_in_order() -> None:
    start = cold_start(StartRequest("gke+operator", "vllm", LLAMA_8B_BYTES, mig=True))
    names = [known.name for known in start.phases]
    assert names == ["node", "driver", "mig", "mig_reboot", "image_pull", "weights", "init", "compile", "graphs"]
    assert start.unknown == ("mig", "mig_reboot")
    uniform = cold_start(StartRequest("gke", "vllm", LLAMA_8B_BYTES, mig=True))
    assert uniform.unknown == ()
    given = start.with_phase("mig_reboot", Spread(60, 90, 120))
    assert given.unknown == ("mig",)
    assert given.node_s == Spread(180 + 60, 540 + 90, 900 + 120)
    with pytest.raises(KeyError):
        uniform.with_phase("mig_reboot", Spread.fixed(60))


def test_typical_start_of_an_8b_model_from_a_shared_volume() -> None:
    """16.06 GB at 15.2 GB per 77 s; 20.7 s init, 52 s compilation, 16 s graphs (medians of the published points)."""
    start = cold_start(StartRequest("gke", "vllm", LLAMA_8B_BYTES, pull="streamed"))
    seconds = dict(start.typical(skip=ON_NODE).phases)
    assert seconds == {
        "node": 0.0,
        "driver": 0.0,
        "image_pull": 20.0,
        "weights": pytest.approx(81.36, abs=0.01),
        "init": 20.7,
        "compile": 52.0,
        "graphs": 16.0,
    }


def test_draws_stay_within_the_ends_and_skips_do_not_shift_them() -> None:
    start = cold_start(StartRequest("aks", "vllm", LLAMA_8B_BYTES))
    for seed in range(50):
        whole = start.draw(generator(seed, "start"))
        warm = start.draw(generator(seed, "start"), skip=ON_NODE | PULL)
        assert warm.phases[-4:] == whole.phases[-4:]
        assert warm.total_s < whole.total_s
        assert whole.until_running_s == pytest.approx(whole.total_s - warm.total_s)
        for (_, seconds), known in zip(whole.phases, start.phases, strict=True):
            assert known.seconds is not None
            assert known.seconds.low <= seconds <= known.seconds.high


def test_an_image_of_unknown_size_is_unknown_unless_streamed() -> None:
    assert "image_pull" in cold_start(StartRequest("gke", "triton", 1e9)).unknown
    assert "image_pull" not in cold_start(StartRequest("gke", "triton", 1e9, pull="streamed")).unknown
    assert "image_pull" not in cold_start(StartRequest("gke", "triton", 1e9, image_bytes=5e9)).unknown


def test_another_engine_takes_vllms_figures_and_says_so() -> None:
    assert cold_start(StartRequest("gke", "sglang", 1e9)).phases[-1].note == "vLLM's, assumed"


def test_spread_draws_the_triangular_law() -> None:
    spread = Spread(10.0, 20.0, 70.0)
    rng = np.random.default_rng(1)
    drawn = np.array([spread.draw(rng) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(spread.mean, rel=0.01)
    assert np.median(drawn) == pytest.approx(70.0 - (60.0 * 50.0 / 2.0) ** 0.5, rel=0.02)
    assert Spread(10.0, 10.0, 30.0).draw(np.random.default_rng(2)) >= 10.0
    for wrong in ((3.0, 2.0, 4.0), (-1.0, 0.0, 1.0), (0.0, 1.0, float("inf"))):
        with pytest.raises(ValueError, match="not in order"):
            Spread(*wrong)
    with pytest.raises(ValueError, match="no points"):
        Spread.of([])

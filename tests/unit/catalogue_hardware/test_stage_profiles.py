"""Measured stages and NIM containers."""

from __future__ import annotations

from rightslice.catalogue.stages import nim_models, stage_profiles

MIB = 2**20


def test_the_parakeet_curve_is_there_as_measured() -> None:
    (curve,) = [
        p for p in stage_profiles() if (p.model, p.partition, p.mode) == ("parakeet-ctc-1.1b", "whole", "offline")
        and p.accelerator == "H100-SXM-80GB"
    ]  # fmt: skip
    assert [(p.streams, p.latency_mean_ms, p.latency_p99_ms, p.requests_per_s) for p in curve.points] == [
        (1, 67, 228, 14.7), (4, 99, 210, 37.9), (8, 165, 248, 44.4), (16, 275, 418, 43.8),
    ]  # fmt: skip
    assert curve.memory_bytes == 15_100 * MIB
    assert curve.trust.startswith("secondary")


def test_slices_loaded_together_are_counted_one_by_one() -> None:
    both = next(p for p in stage_profiles() if "two instances loaded together" in p.note)
    assert both.partition == "3g.40gb"
    assert both.points[-1].requests_per_s == 90.9 / 2


def test_magpie_falls_off_a_cliff_above_its_batch() -> None:
    small = next(p for p in stage_profiles() if p.model == "magpie-tts-multilingual" and "bs8" in p.mode)
    by_streams = {p.streams: p.first_audio_mean_ms for p in small.points}
    assert (by_streams[8], by_streams[16]) == (103, 2488)


def test_streams_rise_along_a_curve_and_every_task_is_covered() -> None:
    for profile in stage_profiles():
        streams = [p.streams for p in profile.points if p.streams]
        assert streams == sorted(set(streams)), profile
    assert {p.task for p in stage_profiles()} == {"transcribe", "synthesize", "embed", "rerank"}


def test_nim_containers_name_their_image_or_leave_it_open() -> None:
    images = {m.model: m.image for m in nim_models()}
    assert images["meta/llama-3.1-8b-instruct"] == "nvcr.io/nim/meta/llama-3.1-8b-instruct"
    assert images["openai/gpt-oss-120b"] == ""
    assert all(m.image.startswith("nvcr.io/nim/") for m in nim_models() if m.image)
    assert all(" " not in tag for m in nim_models() for tag in m.tags_seen)

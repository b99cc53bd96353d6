"""A workload that drafts tokens: what its plan is told about the draft, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.app.planning import plan_workload
from rightslice.core.errors import BadInputError
from workloads import CHAT


def written(folder: Path, speculative: str) -> Path:
    text = CHAT.replace("FLEET", "").replace("ENVIRONMENT", "development")
    path = folder / "chat.yaml"
    path.write_text(text.replace("EXTRA", f"speculative: {speculative}"))
    return path


@pytest.mark.parametrize(
    ("speculative", "told"),
    [
        ("{method: mtp, tokens: 1}", "no multi-token-prediction layers"),
        ("{method: eagle3, tokens: 3}", "needs a draft model"),
        ("{method: n-gram, tokens: 3}", "did you mean ngram"),
    ],
)
def test_what_cannot_draft_is_refused_before_anything_is_searched(tmp_path: Path, speculative: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told) as caught:
        plan_workload(written(tmp_path, speculative))
    assert caught.value.code == "RS0204"


def test_a_draft_model_is_started_with_and_takes_its_room(tmp_path: Path) -> None:
    ngram, draft = (
        plan_workload(written(tmp_path, text)).plan
        for text in (
            "{method: ngram, tokens: 3}",
            "{method: draft_model, model: meta-llama/Llama-3.2-3B, tokens: 3}",
        )
    )
    (without,), (beside,) = ngram.models[0].deployments, draft.models[0].deployments
    assert '"model": "meta-llama/Llama-3.2-3B"' in beside.engine.args["--speculative-config"]
    assert '"model"' not in without.engine.args["--speculative-config"]
    assert without.memory is not None
    assert beside.memory is not None
    if beside.accelerator == without.accelerator:
        assert beside.memory.weights_bytes - without.memory.weights_bytes == 2 * 3_212_749_824
    assert any("gain of speculative decoding" in warning.message for warning in draft.warnings)

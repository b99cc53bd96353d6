"""Small workloads for tests, as YAML with pieces to replace."""

from __future__ import annotations

from rightslice.app.knowledge import known_names
from rightslice.spec.loader import parse_workload
from rightslice.spec.workload import Workload

RATE = "{mean: 2/s, peak: 4/s}"

CHAT = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: chat}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    max_context: 8192
    EXTRA
    traffic:
      rate: {mean: 2/s, peak: 4/s}
      input_tokens: {mean: 800, p95: 2000}
      output_tokens: {mean: 150, p95: 400}
      slo: {ttft_p95: 2s, tpot_p95: 80ms}
fleet: {providers: [gcp], regions: [us-central1], accelerators: {allow: [A100-SXM-80GB, L4]}FLEET}
environment: ENVIRONMENT
"""


def chat(extra: str = "", fleet: str = "", environment: str = "development", rate: str = RATE) -> Workload:
    """One language model; `extra` is a line of the model, `fleet` goes on after the accelerators."""
    text = (
        CHAT.replace(RATE, rate)
        .replace("EXTRA", extra or "isolation: none")
        .replace("FLEET", fleet)
        .replace("ENVIRONMENT", environment)
    )
    return parse_workload(text, file="chat.yaml", known=known_names()).workload

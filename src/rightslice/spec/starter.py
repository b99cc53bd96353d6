"""The file that `rightslice init` writes: short, commented, and right as it stands."""

from __future__ import annotations

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.spec.fields import NAME

_STARTER = """\
# What you want to serve, how fast, and where it may run. Plan it with: rightslice plan workload.yaml -o out
# Every quantity carries its unit: 800ms, 30s, 12/s, 80GiB, $20000.
apiVersion: rightslice/v1
kind: Workload
metadata: {name: NAME}            # lower-case letters, digits, '-'; names the Kubernetes objects

models:
  - name: llm                          # your own name for the model
    source: meta-llama/Llama-3.1-8B-Instruct   # catalogue name, Hugging Face id, folder or config.json
    task: generate                     # generate | embed | rerank | transcribe | synthesize | custom
    precision: [bf16]                  # weight formats that you accept; a lower one is a quality decision
    max_context: 8192                  # tokens: the longest input and output of one request together
    traffic:
      - class: chat                    # requests of one kind; give several where their lengths or limits differ
        rate: {mean: 2/s, peak: 5/s}   # requests per second (also /min, /h); the plan carries the peak
        shape: diurnal                 # the day: constant | diurnal | bursty; or replay a log: `trace: requests.csv`
        input_tokens: {mean: 1500, p95: 4000}   # tokens of the prompt: average, and what 95 % stay below
        output_tokens: {mean: 200, p95: 500}    # tokens of the answer
        prefix_hit_rate: 0.0           # share of the prompt that was seen before (0 to 1): shared system prompts
        slo: {ttft_p95: 800ms, tpot_p95: 50ms}  # 95 % of requests: time to first token, time per further token
    min_replicas: 2                    # copies that always run; 2 survive the loss of one machine

fleet:                                 # what may be bought
  providers: [gcp]                     # gcp | aws | azure | on-prem
  regions: [us-central1]
  accelerators: {allow: [L4, A100-SXM-80GB]}   # all names: rightslice catalog accelerators
  engines: [vllm]                      # rightslice catalog engines
  purchase: [on_demand]                # also: spot, reservation, flex_start, …
  price: [list]                        # also: commitment_1y, commitment_3y, …

budget: {monthly: $15000}              # US dollars a month; remove it for no limit
objective: cost                        # what to optimise within the SLOs: cost | latency | throughput
environment: production                # production | development: how much spare and isolation is planned
hours: always                          # always | office: when it runs
"""


def starter_workload(name: str = "my-service") -> str:
    """A workload of one model as commented YAML. Raises BadInputError when `name` cannot name a workload."""
    if not NAME.fullmatch(name):
        hint = "lower-case letters, digits and '-', at most 63 characters"
        raise BadInputError(Diagnostic("RS0303", f'"{name[:70]}" is not a usable name', hint=hint))
    return _STARTER.replace("{name: NAME} ", f"{{name: {name}}} ", 1)

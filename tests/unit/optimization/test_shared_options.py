"""Models on one GPU: who is with whom, how memory is divided, which nodes may host them."""

from __future__ import annotations

import pytest

from rightslice.app.knowledge import known_names
from rightslice.app.planning import PLANNED_ENGINES
from rightslice.app.scenarios import share_groups
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.rates import Rate, RateTable
from rightslice.optimization.assemble import fleet
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Candidates, Option
from rightslice.optimization.propose import Market, Proposal, propose
from rightslice.optimization.sites import sites
from rightslice.performance.sharing import Tenant, mig, mps, relative_error, time_sliced
from rightslice.performance.stages import stage_costs
from rightslice.procurement.offers import offers
from rightslice.spec.loader import parse_workload
from rightslice.spec.workload import Workload

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
STAGE = "{memory: MEMORY, streams: [1], latency: [100ms], measured_on: A100-SXM-80GB, sm_demand: 0.5}"
TEXT = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: shared}
models:
  - {name: asr, task: transcribe, ASR, min_replicas: 1, profile: PROFILE_A, traffic: {rate: 2/s}}
  - {name: tts, task: synthesize, TTS, min_replicas: 1, profile: PROFILE_T, traffic: {rate: 3/s}}
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    max_context: 4096
    min_replicas: 1
    LLM
    traffic: {rate: 1/s, input_tokens: 200, output_tokens: 40}
fleet: {providers: [PROVIDER], platform: PLATFORM, accelerators: {allow: [A100-SXM-80GB]}, OWNED}
environment: development
"""


def workload(
    asr: str = "partition: time-slicing",
    tts: str = "partition: time-slicing",
    llm: str = "partition: whole",
    *,
    memory: tuple[str, str] = ("9.6GB", "13.4GB"),
    platform: str = "gke+operator",
    owned: str = "regions: [us-central1]",
) -> Workload:
    replaced = {
        "ASR": asr,
        "TTS": tts,
        "LLM": llm,
        "PROFILE_A": STAGE.replace("MEMORY", memory[0]),
        "PROFILE_T": STAGE.replace("MEMORY", memory[1]),
        "PROVIDER": "on-prem" if "owned" in owned else "gcp",
        "PLATFORM": platform,
        "OWNED": owned,
    }
    text = TEXT
    for word, value in replaced.items():
        text = text.replace(word, value)
    return parse_workload(text, file="shared.yaml", known=known_names()).workload


def asked(given: Workload) -> tuple[tuple[Need, ...], Candidates, Market]:
    wanted = needs(given, {"asr": None, "tts": None, "llm": resolve_model(LLAMA)}, {})
    offered, _ = offers(given.fleet, interruptible=False)
    platform = str(given.fleet.platform)
    market = Market(offered, {"gcp": platform, "on-prem": platform}, {})
    return wanted, candidates(wanted, sites(offered, market.platform_of), PLANNED_ENGINES), market


def proposed(given: Workload) -> tuple[Proposal, dict[str, Option], Market, tuple[Need, ...]]:
    wanted, found, market = asked(given)
    options = {option.key: option for option in found.options}
    rates = RateTable({key: Rate(5.0, simulated=False) for key in options})
    demands = {"asr": 2.0, "tts": 3.0, "llm": 1.0}
    return propose(wanted, found.options, rates, demands, market), options, market, wanted


def share_of(found: Candidates, model: str) -> Option:
    (option,) = found.of(model)
    assert option.share is not None
    return option


def test_models_of_one_partition_are_neighbours() -> None:
    _, found, _ = asked(workload())
    asr, tts = share_of(found, "asr"), share_of(found, "tts")
    assert asr.share is not None
    assert asr.share.tenant == Tenant(0.5, 0.5, overlaps=True)
    assert (asr.share.slots, asr.share.each, asr.share.neighbours) == (2, 1, (Tenant(0.5, 0.5, overlaps=True),))
    assert asr.slot != tts.slot
    assert asr.device.name == "A100-SXM-80GB:time-slicing"
    assert asr.crowding == time_sliced(asr.share.tenant, asr.share.neighbours)
    alone = (1.0 + 0.2) * (1.0 + relative_error()) - 1.0
    assert asr.relative_error == pytest.approx(alone)
    assert all(option.share is None for option in found.of("llm"))


def test_labels_divide_and_a_model_alone_shares_with_itself() -> None:
    given = workload("partition: time-slicing, gpu: left", "partition: time-slicing, gpu: right")
    _, found, _ = asked(given)
    for model in ("asr", "tts"):
        share = share_of(found, model).share
        assert share is not None
        assert (share.slots, share.each, share.label) == (2, 2, "left" if model == "asr" else "right")
    options = {option.key: option for option in found.options}
    key = share_of(found, "asr").key
    (first, second) = share_groups({key: 3}, options)
    assert (first.members, second.members) == (((key, 0), (key, 2)), ((key, 1),))


def test_the_law_of_a_stage_on_a_slice_is_that_of_its_tenant() -> None:
    """One formula in two forms: max(1, d / s)."""
    given = workload()
    profile = given.model("tts").profile
    assert profile is not None
    part = device("A100-SXM-80GB", "2g.20gb")
    whole = stage_costs(profile, device("A100-SXM-80GB")).latency_ps[1]
    assert stage_costs(profile, part).latency_ps[1] / whole == pytest.approx(mig(Tenant(0.5, 0.5, overlaps=True), part))


def test_an_engine_beside_stages_gets_what_they_leave() -> None:
    """95 % of the GPU in all; the fraction is told to the engine in hundredths."""
    _, found, _ = asked(workload(llm="partition: time-slicing"))
    members = [share_of(found, model) for model in ("asr", "tts", "llm")]
    settings = members[2].settings
    assert settings is not None
    used = sum(option.memory.used_bytes for option in members)
    assert used <= 0.95 * members[0].device.memory_bytes
    assert settings.memory_fraction == round(settings.memory_fraction, 2)
    assert 0.6 < settings.memory_fraction < 0.9
    wider = members[2].device.memory_bytes * (settings.memory_fraction + 0.02)
    assert wider + members[0].memory.used_bytes + members[1].memory.used_bytes > 0.95 * members[0].device.memory_bytes


def test_two_replicas_of_one_engine_halve_the_gpu() -> None:
    _, found, _ = asked(workload("partition: whole", "partition: whole", "partition: time-slicing"))
    llm = share_of(found, "llm")
    assert llm.settings is not None
    assert llm.settings.memory_fraction == 0.47
    assert llm.share is not None
    assert llm.share.anywhere


def test_mps_limits_threads_and_memory_of_each_client() -> None:
    _, found, _ = asked(workload("partition: mps", "partition: mps"))
    asr = share_of(found, "asr")
    assert asr.share is not None
    assert asr.share.thread_share == 0.5
    assert asr.crowding == mps(asr.share.tenant, asr.share.neighbours, 0.5)
    refused = asked(workload("partition: mps", "partition: mps", memory=("9.6GB", "50GB")))[1]
    (reason,) = [r for r in refused.rejections if r.model == "tts"]
    assert reason.code == "RS2001"
    assert "MPS gives each client 39.6 GiB" in reason.reason


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (workload(memory=("40GB", "45GB")), "RS2001"),
        (workload(platform="gke"), "RS4007"),
        (workload("partition: time-slicing, isolation: required"), "RS4002"),
        (workload("partition: vm-fraction", "partition: whole"), "RS4013"),
    ],
)
def test_what_cannot_share_says_why(given: Workload, code: str) -> None:
    _, found, _ = asked(given)
    assert not found.of("asr")
    assert {r.code for r in found.rejections} == {code}
    assert all(r.relaxation for r in found.rejections)


def test_shared_gpus_and_whole_ones_never_meet_on_a_node() -> None:
    """The device plugin shares every GPU of a node: two pools, also of one machine type."""
    owned = "owned: [{machine_type: p4de.24xlarge, count: 2}]"
    proposal, options, market, wanted = proposed(workload(platform="on-prem", owned=owned))
    assert proposal.feasible
    made = fleet(proposal, options, wanted, RateTable(), market)
    by_sharing = {pool.sharing: pool for pool in made.pools}
    assert set(by_sharing) == {"none", "time-slicing"}
    shared = by_sharing["time-slicing"]
    assert [(use.name, use.gpus, use.profiles) for use in shared.layouts] == [("time-slicing", 8, {"time-slicing": 2})]
    slots = [(p.gpu, s.partition, s.model) for p in made.placements if p.pool == shared.name for s in p.slots]
    assert slots == [(0, "time-slicing", "asr"), (0, "time-slicing", "tts")]
    assert sum(pool.nodes for pool in made.pools) == 2


def test_nodes_of_several_gpus_need_room_for_any_pair() -> None:
    """60 + 10 GB fit a GPU and 60 + 60 do not: only where the node has one GPU is it sure who meets whom."""
    memory = ("60GB", "13.4GB")
    _, found, _ = asked(workload(memory=memory))
    share = share_of(found, "asr").share
    assert share is not None
    assert not share.anywhere
    owned = "owned: [{machine_type: p4de.24xlarge, count: 2}]"
    assert not proposed(workload(memory=memory, platform="on-prem", owned=owned))[0].feasible
    assert proposed(workload(memory=memory))[0].feasible

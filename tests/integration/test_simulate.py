"""`rightslice simulate` on real plans: the plan's own verification again, and what-if questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightslice.core.documents import to_jsonable
from rightslice.core.quantities import format_seconds
from rightslice.ui.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
TRACE = Path(__file__).parents[1] / "data" / "traces" / "azure_llm_2023_conv_head.csv"

Answer = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a planned chat model."""
    folder = tmp_path_factory.mktemp("chat")
    assert main(["plan", str(EXAMPLES / "gemma-27b-chat.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a planned pipeline."""
    folder = tmp_path_factory.mktemp("voice")
    assert main(["plan", str(EXAMPLES / "voice-assistant.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture
def simulated(capfdbinary: pytest.CaptureFixture[bytes]) -> Answer:
    def run(*arguments: object) -> tuple[int, Any]:
        capfdbinary.readouterr()
        code = main(["simulate", *map(str, arguments), "--json"])
        out = capfdbinary.readouterr().out
        return code, json.loads(out)

    return run


def test_a_plan_simulated_is_its_own_verification(chat: Path, simulated: Answer) -> None:
    code, found = simulated(chat)
    verified = json.loads((chat / "plan.json").read_text())["verification"]
    assert code == 0
    for name in ("requests", "completed", "failed", "seed", "horizon_s"):
        assert found[name] == verified[name]
    assert found["per_model"][0]["slo_attainment"] == verified["slo_attainment"]


def test_every_field_of_the_contract_is_there(voice: Path, simulated: Answer) -> None:
    _, found = simulated(voice / "plan.json")
    assert {"requests", "completed", "failed", "requeued", "lost", "seed", "cpu_s", "per_model", "pipelines",
            "gpu_hours", "usd", "requests_per_s_per_gpu"} <= found.keys()  # fmt: skip
    assert {(p["name"], p["users"]) for p in found["pipelines"]} == {("voice", "light"), ("voice", "heavy")}
    plan = json.loads((voice / "plan.json").read_text())
    gpus = sum(pool["nodes"] * pool["gpus_per_node"] for pool in plan["pools"])
    assert found["gpu_hours"] == pytest.approx(gpus * found["horizon_s"] / 3600)
    per_hour = sum(pool["nodes"] * pool["hourly_usd"] for pool in plan["pools"])
    assert found["usd"] == pytest.approx(per_hour * found["horizon_s"] / 3600)


def test_fewer_replicas_are_slower_and_cost_less(chat: Path, simulated: Answer) -> None:
    _, planned = simulated(chat)
    _, found = simulated(chat, "--set", "models.chat.replicas=1")
    assert len(found["replicas"]) < len(planned["replicas"])
    assert found["per_model"][0]["ttft_ms"]["p95"] > planned["per_model"][0]["ttft_ms"]["p95"]
    assert found["usd"] < planned["usd"]


def test_a_faster_accelerator_is_faster_and_has_no_price_here(chat: Path, simulated: Answer) -> None:
    _, planned = simulated(chat)
    code, found = simulated(chat, "--set", "models.chat.accelerator=H100-SXM-80GB")
    assert code == 0
    assert found["per_model"][0]["tpot_ms"]["p50"] < planned["per_model"][0]["tpot_ms"]["p50"] / 1.5
    assert found["usd"] is None


def test_too_much_traffic_is_a_no(chat: Path, simulated: Answer) -> None:
    code, found = simulated(chat, "--rate", "60/s", "--horizon", "5m")
    assert code == 1
    assert not found["holds"]


def test_recorded_requests_replace_the_drawn_ones(chat: Path, simulated: Answer) -> None:
    _, found = simulated(chat, "--trace", TRACE, "--horizon", "2m")
    rows = TRACE.read_text().splitlines()[1:]
    mean_output = sum(int(row.split(",")[2]) for row in rows) / len(rows)
    completed = found["per_model"][0]
    assert completed["output_tokens_per_s"] / completed["requests_per_s"] == pytest.approx(mean_output, rel=0.25)


def test_one_population_alone(voice: Path, simulated: Answer) -> None:
    _, found = simulated(voice, "--users", "light", "--set", "pipelines.voice.users.light.concurrent=4")
    assert [p["users"] for p in found["pipelines"]] == ["light"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--set", "models.chta.replicas=2"], "RS0501"),
        (["--set", "models.chat.replicas=-1"], "RS0501"),
        (["--set", "models.chat.replicas=many"], "RS0501"),
        (["--set", "models.chat.accelerator=L4"], "RS2001"),
        (["--set", "models.chat.accelerator=H999"], "RS0312"),
        (["--set", "models.chat.traffic.rate=fast"], "RS0107"),
        (["--set", "models.chat.colour=red"], "RS0201"),
        (["--rate", "3/s", "--trace", "x.csv"], "RS0502"),
        (["--trace", "missing.csv"], "RS0401"),
        (["--users", "heavy"], "RS0501"),
        (["--horizon", "0s"], "RS0501"),
        (["--horizon", "200d"], "RS0501"),
        (["--seed", "-1"], "RS0501"),
        (["--fault", "pods@1e9/h"], "RS0501"),
    ],
)
def test_what_makes_no_sense_is_one_diagnostic(
    chat: Path, arguments: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(chat), *arguments]) == 2
    said = capsys.readouterr().err
    assert rule in said
    assert "Traceback" not in said


def test_a_plan_of_an_older_version_says_so(chat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads((chat / "plan.json").read_text())
    plan["workload"] = None
    (tmp_path / "plan.json").write_text(json.dumps(to_jsonable(plan)))
    assert main(["simulate", str(tmp_path)]) == 2
    assert "plan again" in capsys.readouterr().err


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plan for traffic that follows the hours of a day."""
    folder = tmp_path_factory.mktemp("day")
    (folder / "w.yaml").write_text(
        """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: day}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    traffic:
      rate: {mean: 4/s, peak: 12/s}
      shape: diurnal
      input_tokens: {mean: 1500, p95: 4000}
      output_tokens: {mean: 200}
      slo: {ttft_p95: 4s, tpot_p95: 120ms}
fleet: {providers: [gcp], regions: [us-central1], accelerators: {allow: [L4]}}
"""
    )
    assert main(["plan", str(folder / "w.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


def test_an_autoscaler_follows_the_day_between_the_bounds(day: Path, simulated: Answer) -> None:
    _, fixed = simulated(day, "--autoscaler", "fixed")
    _, found = simulated(day, "--autoscaler", "hpa")
    _, perfect = simulated(day, "--autoscaler", "perfect")
    assert found["requests"] == fixed["requests"] == pytest.approx(4 * 86_400, rel=0.02)
    assert fixed["scale_events"] == []
    assert found["gpu_hours"] < fixed["gpu_hours"]
    assert found["usd"] / found["gpu_hours"] == pytest.approx(fixed["usd"] / fixed["gpu_hours"])
    (bound,) = found["bounds"]
    assert bound["fluid"] < bound["perfect"] < bound["peak"]
    assert bound["perfect"] < perfect["gpu_hours"]
    assert found["requests"] == found["completed"] + found["failed"] + sum(
        c["requests"] - c["completed"] - c["failed"] for c in found["per_model"]
    )
    event = found["scale_events"][0]
    assert set(event) == {"time_s", "model", "from", "to", "reason"}
    sizes = [moment["ready"] for moment in found["timeline"]]
    assert max(sizes) > min(sizes) >= 1


def test_aiming_at_all_that_a_replica_can_do_is_slower(day: Path, simulated: Answer) -> None:
    runs = [
        simulated(day, "--autoscaler", f"{{share: {share}, min: 1}}", "--horizon", "12h")[1] for share in (0.3, 1.0)
    ]
    assert runs[1]["per_model"][0]["ttft_ms"]["p99"] > runs[0]["per_model"][0]["ttft_ms"]["p99"]


def test_a_lost_zone_is_told_and_no_request_vanishes(day: Path, simulated: Answer) -> None:
    _, found = simulated(day, "--autoscaler", "fixed", "--fault", "zone@90m", "--horizon", "4h")
    assert {event["time_s"] for event in found["preemptions"]} == {5400.0}
    requeued = sum(event["requests_requeued"] for event in found["preemptions"])
    assert requeued == found["requeued"] > 0
    assert found["failed"] >= found["lost"] == sum(event["requests_lost"] for event in found["preemptions"])


def test_keda_takes_an_idle_model_to_zero(day: Path, simulated: Answer) -> None:
    change = "models.llm.autoscaler={kind: keda, signal: in_flight, target: 4, min: 0, max: 3, cooldown: 60s}"
    gate = ("--set", "models.llm.gateway.flow_control=true")
    _, found = simulated(day, "--set", change, *gate, "--set", "models.llm.traffic.rate=2/h", "--horizon", "6h")
    assert 0 in {event["to"] for event in found["scale_events"]}
    assert found["completed"] >= 1
    assert found["per_model"][0]["ttft_ms"]["p50"] > 60_000  # a request that finds nothing waits for a cold start


def test_tuning_orders_settings_by_cost(day: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = main(["simulate", str(day), "--autoscaler", "hpa", "--tune", "--horizon", "3h", "--json"])
    trials = json.loads(capfdbinary.readouterr().out)["trials"]
    holding = [trial["usd"] for trial in trials if trial["holds"]]
    assert holding == sorted(holding)
    assert code == (0 if holding else 1)
    names = ("share", "min_replicas", "down_window_s", "up_window_s")
    assert len({tuple(trial[name] for name in names) for trial in trials}) == len(trials) >= 8
    assert len({trial["down_window_s"] for trial in trials}) == 3


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--autoscaler", "vpa"], "RS0501"),
        (["--autoscaler", "{kind: hpa, target: -1}"], "RS0501"),
        (["--autoscaler", "{kind: hpa, sginal: held}"], "RS0501"),
        (["--autoscaler", "{kind: hpa, min: 0}"], "RS0502"),
        (["--autoscaler", "{kind: keda, signal: kv_use}"], "RS0502"),
        (["--autoscaler", "{kind: keda, min: 0}"], "RS0502"),
        (["--autoscaler", "{kind: keda, min: 0, signal: running}"], "RS0502"),
        (["--fault", "meteor"], "RS0501"),
        (["--fault", "zone@soon"], "RS0501"),
        (["--fault", "spot"], "RS0502"),
        (["--fault", "nodes@1/h"], "RS0501"),
        (["--fault", "pods"], "RS0502"),
        (["--fault", "repartition@10m"], "RS0502"),
        (["--fault", "gpu@0/d"], "RS0501"),
        (["--fault", "gpu@-1/d"], "RS0501"),
        (["--fault", "gpu@-5m"], "RS0501"),
        (["--fault", "gpu@nan"], "RS0501"),
        (["--fault", "pods@nan/h"], "RS0501"),
        (["--fault", "pods@1e300/s"], "RS0501"),
        (["--fault", "mps@10m"], "RS0502"),
        (["--fault", "zone:c@10m"], "RS0501"),
        (["--fault", "gpu:nowhere@10m"], "RS0501"),
        (["--fault", "zone:@10m"], "RS0501"),
        (["--fault", "gpu@100h", "--horizon", "6h"], "RS0501"),
        (["--rollout", "soon"], "RS0501"),
        (["--rollout", "30m,surge=0,unavailable=0"], "RS0501"),
        (["--rollout", "30h", "--horizon", "6h"], "RS0501"),
        (["--autoscaler", "{kind: fixed, min: 5, max: 2}"], "RS0501"),
        (["--fault", "zone@100h", "--horizon", "6h"], "RS0501"),
        (["--autoscaler", "{kind: hpa, target: 0.0000001}"], "RS0501"),
        (["--autoscaler", "{kind: hpa, min: 5, max: 2}"], "RS0501"),
        (["--autoscaler", "{kind: hpa, max: 100000}"], "RS0501"),
        (["--tune"], "RS0502"),
    ],
)
def test_a_control_plane_that_makes_no_sense_is_one_diagnostic(
    day: Path, arguments: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(day), *arguments]) == 2
    said = capsys.readouterr().err
    assert rule in said
    assert "Traceback" not in said


def test_single_gpus_and_pods_fail_by_themselves(day: Path, simulated: Answer) -> None:
    _, found = simulated(day, "--fault", "gpu@30m", "--fault", "pods@1h", "--horizon", "2h")
    causes = [(event["cause"], event["time_s"], len(event["replicas"])) for event in found["preemptions"]]
    assert causes == [("gpu", 1800.0, 1), ("pod", 3600.0, 1)]
    assert found["preemptions"][0]["gpu"] == 0
    assert sum(event["requests_requeued"] for event in found["preemptions"]) == found["requeued"]


def test_a_rolling_update_is_told_with_what_its_requests_met(day: Path, simulated: Answer) -> None:
    """Without room for one more the manifest gives up one pod at a time; with surge new machines are bought."""
    _, planned = simulated(day, "--rollout", "10m", "--horizon", "8h")
    (result,) = planned["rollouts"]
    assert (result["surge"], result["unavailable"], result["stuck_s"]) == (0, 1, None)
    assert 600.0 < result["done_s"] < 28_800.0
    (during,) = result["during"]
    assert during["class"] == "default"
    assert 0 < during["requests"] < planned["requests"]
    _, surged = simulated(day, "--rollout", "10m,surge=1", "--horizon", "8h")
    assert surged["rollouts"][0]["done_s"] is not None
    assert surged["gpu_hours"] > planned["gpu_hours"]
    assert min(moment["ready"] for moment in surged["timeline"]) > min(m["ready"] for m in planned["timeline"])


def test_a_recording_ends_or_is_said_to_be_played_again(chat: Path, simulated: Answer) -> None:
    rows = TRACE.read_text().splitlines()
    _, once = simulated(chat, "--trace", TRACE)
    _, followed = simulated(chat, "--trace", TRACE, "--autoscaler", "fixed")
    assert once["notes"] == followed["notes"] == []
    assert once["requests"] == followed["requests"] == len(rows) - 1
    assert once["horizon_s"] == followed["horizon_s"] < 3600.0
    _, twice = simulated(chat, "--trace", TRACE, "--horizon", f"{2 * once['horizon_s']:.3f}s")
    assert twice["notes"] == [f"{TRACE.name} lasts {format_seconds(once['horizon_s'])}, played 2.0 times"]


def test_sizes_given_to_a_fixed_fleet_hold(day: Path, simulated: Answer) -> None:
    _, found = simulated(day, "--autoscaler", "{kind: fixed, max: 1}", "--horizon", "1h")
    assert {moment["replicas"] for moment in found["timeline"] if moment["time_s"] > 0} == {1}


def test_no_replica_at_all_is_dark(day: Path, simulated: Answer) -> None:
    """Kubernetes' autoscaler does nothing at a size of zero."""
    code, found = simulated(day, "--set", "models.llm.replicas=0", "--autoscaler", "hpa", "--horizon", "1h")
    assert code == 1
    assert found["dark_s"]["llm"] > 3000.0


def test_pipelines_keep_their_replicas(voice: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(voice), "--autoscaler", "hpa"]) == 2
    assert "no model has traffic of its own" in capsys.readouterr().err


def test_a_pipeline_with_a_control_plane_that_does_nothing_is_the_pipeline(voice: Path, simulated: Answer) -> None:
    _, plain = simulated(voice, "--users", "light")
    _, found = simulated(voice, "--users", "light", "--fault", "nodes", "--set", "models.llm.autoscaler=fixed")
    assert found["pipelines"] == plain["pipelines"]


def test_users_who_are_left_without_a_replica_are_no_success(voice: Path, simulated: Answer) -> None:
    """Each of 50 users waits with one request: 2.5 % of all, while nobody is served for minutes."""
    code, found = simulated(voice, "--users", "heavy", "--fault", "zone@2m")
    assert code == 1
    assert not found["holds"]
    assert max(found["dark_s"].values()) > 120.0
    assert found["pipelines"][0]["slo_attainment"] > 0.95


def test_more_load_than_can_be_served_does_not_slow_the_engines(chat: Path, simulated: Answer) -> None:
    """What is answered in the window counts, whenever it came; the run is no shorter than the plan's verification."""
    answers = [simulated(chat, "--rate", rate)[1] for rate in ("20/s", "60/s", "200/s")]
    rates = [found["per_model"][0]["requests_per_s"] for found in answers]
    assert min(rates) > 0.95 * max(rates)
    _, planned = simulated(chat)
    for found in answers:
        assert found["horizon_s"] == planned["horizon_s"]
        assert found["requests"] == found["completed"] + found["failed"] + found["unfinished"]
        assert found["answered"] >= found["completed"]
        (window,) = found["windows"]
        assert window["begin_s"] == pytest.approx(0.1 * window["end_s"])


def test_nothing_measured_is_no_success(chat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(chat), "--rate", "0.001/h", "--horizon", "10m"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing was measured" in said
    assert "a longer --horizon" in said
    assert "holds" not in said


def test_users_stay_as_long_as_is_simulated(voice: Path, simulated: Answer) -> None:
    _, found = simulated(voice, "--users", "heavy", "--horizon", "20m", "--fault", "pods@15m")
    plan = json.loads((voice / "plan.json").read_text())
    gpus = sum(pool["nodes"] * pool["gpus_per_node"] for pool in plan["pools"])
    assert found["horizon_s"] == pytest.approx(1200.0)
    assert found["gpu_hours"] == pytest.approx(gpus / 3.0)
    assert {event["time_s"] for event in found["preemptions"]} == {900.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fault", "zone@200s"], "the run of voice/light lasts from 0 to 2 min 15 s"),
        (["--users", "heavy", "--rollout", "10m"], "the run of voice/heavy lasts from 0 to 6 min 15 s"),
        (["--horizon", "60s"], "voice/heavy takes 75 s for ramp-up and ramp-down alone"),
        (["--seed", "99999999999999999999999"], "from 0 to 9007199254740991"),
    ],
)
def test_times_and_seeds_out_of_range_are_refused(
    voice: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(voice), *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [["plan", "w.yaml"], ["trace", "t.csv"]])
def test_every_command_refuses_a_seed_out_of_range(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("-1", str(2**53)):
        assert main([*command, "--seed", seed]) == 2
        assert f"--seed {seed} is out of range" in capsys.readouterr().err


def test_another_size_stands_on_its_own_nodes_from_the_start(day: Path, simulated: Answer) -> None:
    change = ("--set", "models.llm.replicas=2", "--horizon", "1h")
    _, plain = simulated(day, *change)
    _, fixed = simulated(day, *change, "--autoscaler", "fixed")
    assert fixed["gpu_hours"] == pytest.approx(plain["gpu_hours"])
    assert fixed["usd"] == pytest.approx(plain["usd"])

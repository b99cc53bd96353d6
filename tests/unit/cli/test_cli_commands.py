"""The commands against stand-in use cases: one JSON document, exit codes, where each word goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rightslice.core.documents import to_jsonable
from rightslice.core.errors import BadInputError, Diagnostic, Location, OutsideError
from rightslice.core.plan import Bound, MonthlyCost, Plan, Pool, Purchase, Verification
from rightslice.core.timeline import Timeline
from rightslice.ui.cli.main import main

PLAN = Plan(
    name="shop",
    feasible=True,
    reproducible=True,
    seed=3,
    environment="production",
    objective="cost",
    monthly_usd=MonthlyCost(7401.0, 6930.0, 7880.0, "2026-08-03", "exact", 7401.0),
    usd_per_million_input_tokens=None,
    usd_per_million_output_tokens=None,
    slo_probability=0.97,
    binding_slo=None,
    pools=(
        Pool(
            "p", "gcp", "us-central1", "gke", "g2-standard-12", "L4", 1, 2, 2, Purchase("on_demand", "list"), 1.0,
            "2026-08-03", "exact", "none", (),
        ),
    ),
    models=(),
    pipelines=(),
    placements=(),
    autoscaling=(),
    verification=Verification(3, 60, 58, 60.0, 100, 100, 0, 0.987, 1),
    bound=Bound(7401.0, 0.0),
    baseline=None,
    rejected=(),
    alternatives=(),
    requests_to_make=(),
    warnings=(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    timings: dict[str, float]
    warnings: tuple[Diagnostic, ...]
    timelines: tuple[Timeline, ...] = ()


class Planning:
    """Stands in for the planning use case; remembers what it was asked."""

    def __init__(self) -> None:
        self.plan = PLAN
        self.asked: dict[str, Any] = {}
        self.failure: BaseException | None = None

    def plan_workload(
        self,
        path: Path,
        *,
        seed: int,
        risk: float,
        progress: Callable[[str], None],
        over_time: bool,
        current: object,
        calibrations: object,
    ) -> Outcome:
        self.asked = {"path": path, "seed": seed, "risk": risk}
        progress("thinking")
        if self.failure:
            raise self.failure
        return Outcome(self.plan, {"total_cpu_s": 1.5}, (Diagnostic("RS0304", "no load", severity="warn"),))

    def write_plan(self, plan: Plan, folder: Path, *, emit: bool, timelines: tuple[Timeline, ...]) -> tuple[str, ...]:
        assert timelines == ()
        self.asked |= {"folder": folder, "emit": emit}
        more = ("kubernetes/README.md", "kubernetes/base/a.yaml") if emit else ()
        return ("plan.json", "report.html", *more)


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> Planning:
    stand_in, module = Planning(), ModuleType("rightslice.app.planning")
    module.write_plan = stand_in.write_plan  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rightslice.app.planning", module)
    scaling = ModuleType("rightslice.app.autoscaling")
    scaling.plan_scaled = stand_in.plan_workload  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rightslice.app.autoscaling", scaling)
    return stand_in


Captured = pytest.CaptureFixture[str]


def test_json_is_one_document_with_timings_and_nothing_else(planning: Planning, capsys: Captured) -> None:
    assert main(["plan", "w.yaml", "--json", "--seed", "3", "--risk", "0.1"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {**to_jsonable(PLAN), "timings": {"total_cpu_s": 1.5}}
    assert "warn[RS0304]" in err
    assert "thinking" not in err
    assert planning.asked == {"path": Path("w.yaml"), "seed": 3, "risk": 0.1}


def test_without_o_nothing_is_written_and_the_next_step_is_named(planning: Planning, capsys: Captured) -> None:
    assert main(["plan", "w.yaml"]) == 0
    out = capsys.readouterr().out
    assert "$7,401 / month" in out
    assert "Next   rightslice plan w.yaml -o out" in out
    assert "folder" not in planning.asked


def test_what_was_written_is_listed(planning: Planning, capsys: Captured, tmp_path: Path) -> None:
    assert main(["plan", "w.yaml", "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Wrote  plan.json   report.html   kubernetes/ (2 files; start with kubernetes/README.md)" in out
    assert f"open {tmp_path}/report.html" in out
    main(["plan", "w.yaml", "-o", str(tmp_path), "--no-emit", "--json"])
    assert planning.asked["emit"] is False
    out, err = capsys.readouterr()
    json.loads(out)
    assert "Wrote  plan.json   report.html   in" in err


def test_quiet_prints_three_lines(planning: Planning, capsys: Captured) -> None:
    assert main(["plan", "w.yaml", "--quiet"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["DEPLOY", "COST", "SLO"]


def test_a_no_is_exit_code_1_and_still_an_answer(planning: Planning, capsys: Captured) -> None:
    planning.plan = replace(PLAN, feasible=False, pools=(), monthly_usd=None, verification=None)
    assert main(["plan", "w.yaml", "-o", "somewhere"]) == 1
    assert "No deployment meets this workload" in capsys.readouterr().out
    assert planning.asked["emit"] is False
    assert main(["plan", "w.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["feasible"] is False


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (
            BadInputError(
                [Diagnostic("RS0312", "unknown accelerator", Location("w.yaml", 12, 28), "did you mean L4?")]
            ),
            2,
            "error[RS0312] w.yaml:12:28: unknown accelerator (did you mean L4?)",
        ),
        (OutsideError("RS0401", "the cluster is away"), 3, "error[RS0401] the cluster is away"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("bad\nthing"), 2, "error[RS9001] unexpected failure: ValueError: bad thing (please report"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_every_failure_is_a_line_and_an_exit_code(
    planning: Planning, capsys: Captured, failure: BaseException, code: int, said: str
) -> None:
    planning.failure = failure
    assert main(["plan", "w.yaml"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert "Traceback" not in err


def test_a_failure_under_json_is_one_document_too(planning: Planning, capsys: Captured) -> None:
    planning.failure = BadInputError([Diagnostic("RS0312", "unknown", Location("w.yaml", 2, 3), "try L4")] * 2)
    assert main(["plan", "w.yaml", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "RS0312"
    assert error["location"] == {"file": "w.yaml", "line": 2, "column": 3}
    assert [d["slug"] for d in error["diagnostics"]] == ["accelerator.unknown"] * 2


def test_the_traceback_is_for_those_who_ask(
    planning: Planning, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGHTSLICE_DEBUG", "1")
    planning.failure = ZeroDivisionError("x")
    assert main(["plan", "w.yaml"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["plna"], 'error[RS0503] unknown command "plna". Did you mean "plan"?'),
        (["plan"], "error[RS0503] WORKLOAD is missing (see rightslice plan --help)"),
        (["plan", "w", "--sed", "1"], "error[RS0503] unknown option: --sed. Did you mean --seed?"),
        (["plan", "w", "--seed", "x"], 'error[RS0501] invalid value for --seed: unable to convert "x"'),
        (["plan", "w", "x"], "error[RS0503] unexpected argument: x"),
        (["plan", "w", "-o"], "error[RS0503] -o needs a value"),
        (["plan", "w", "--risk", "1"], "error[RS0501] --risk 1 is not between 0 and 1"),
        (["plan", "w", "--seed", "-1"], "error[RS0501] --seed -1 is out of range"),
        (["plan", "w", "-o", __file__], f"error[RS0407] {__file__}: exists and is not a folder"),
        (["size", "m", "--dtype", "bf61"], 'error[RS0501] invalid value "bf61" for --dtype.'),
        (
            ["size", "m", "--engine", "vllm", "--accelerator", "L4", "--engine-version", "0." + "9" * 5000],
            'error[RS0501] --engine-version "0.99',
        ),
        (["size", "m", "--sequences", "0"], "error[RS0501] --sequences 0 is too small"),
        (["catalog", "gpus"], 'error[RS0503] unknown command "gpus". Available commands: accelerators, machines'),
        (["init", "--name", "A B"], 'error[RS0303] "A B" is not a usable name'),
        (["audit", "plan.json"], 'error[RS0503] unknown command "audit".'),
    ],
)
def test_mistakes_on_the_command_line(tokens: list[str], said: str, capsys: Captured) -> None:
    assert main(tokens) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_init_writes_a_file_that_is_not_overwritten_unasked(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "workload.yaml"
    assert main(["init", str(file), "--name", "shop"]) == 0
    assert "name: shop" in file.read_text()
    file.write_text("mine")
    assert main(["init", str(file)]) == 2
    assert file.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", str(file), "--force"]) == 0
    assert main(["init", "-"]) == 0
    assert capsys.readouterr().out == file.read_text()


@pytest.mark.parametrize("tokens", [["schema"], ["schema", "--plan"], ["schema", "--json"]])
def test_schema_is_one_json_document(tokens: list[str], capsys: Captured) -> None:
    assert main(tokens) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[dict[str, object], ...]
    notes: tuple[str, ...]


def test_catalog_passes_its_filters_on_and_prints_rows(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    def catalogue_table(kind: str, **filters: object) -> Table:
        asked.append((kind, filters))
        return Table(("name", "gib"), ({"name": "L4", "gib": 22.5},), ("a note",))

    module = ModuleType("rightslice.app.catalogue")
    module.catalogue_table = catalogue_table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rightslice.app.catalogue", module)
    assert main(["catalog", "machines", "--provider", "gcp", "--search", "g2", "--json"]) == 0
    expected = {"table": "machines", "rows": [{"name": "L4", "gib": 22.5}], "notes": ["a note"]}
    assert json.loads(capsys.readouterr().out) == expected
    assert asked == [("machines", {"provider": "gcp", "region": "", "accelerator": "", "search": "g2"})]
    for kind in ("accelerators", "models", "engines", "platforms", "mig"):
        assert main(["catalog", kind]) == 0
        assert asked[-1][0] == kind
    assert "L4" in capsys.readouterr().out


def test_size_answers_with_the_report_and_no_is_exit_code_1(capsys: Captured) -> None:
    assert main(["size", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "A100-SXM-80GB", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"] == 8_030_261_248
    assert [fit["accelerator"] for fit in report["fits"]] == ["A100-SXM-80GB"]
    assert main(["size", "meta-llama/Llama-3.1-8B-Instruct", "--sequences", "100000", "--accelerator", "L4"]) == 1
    assert "Fits on none" in capsys.readouterr().out


def test_size_of_another_precision_says_what_it_means_and_writes_how_to_get_there(
    tmp_path: Path, capsys: Captured
) -> None:
    asked = ["size", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "H100-SXM-80GB"]
    assert main([*asked, "--json"]) == 0
    assert "precision" not in json.loads(capsys.readouterr().out)
    assert main([*asked, "--dtype", "int4", "-o", str(tmp_path / "out"), "--json"]) == 0
    out, err = capsys.readouterr()
    precision = json.loads(out)["precision"]
    assert precision["weights"]["risk"]["risk"] == "medium"
    assert precision["weights"]["risk"]["figures"][0]["date"] == "2026-05-27"
    assert [seen["level"] for seen in precision["weights"]["support"]] == ["stored"]
    assert precision["kv"] is None
    assert precision["checkpoints"][0]["dtype"] == "int4"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "QUANTISE.md", "evaluate.yaml", "quantise.yaml", "recipe.yaml",
    ]  # fmt: skip
    assert "recipe.yaml" in err
    assert main([*asked, "--dtype", "fp8", "--kv-dtype", "fp8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Precision with vLLM" in shown
    assert "fp8 KV cache instead of bf16 native H100-SXM-80GB" in shown
    assert main([*asked, "-o", str(tmp_path / "none")]) == 2
    assert "RS0502" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_size_gives_the_three_answers_about_the_cache_of_an_engine(capsys: Captured) -> None:
    asked = ["size", "gemma-3-27b-it", "--accelerator", "A100-SXM-80GB", "--engine", "vllm", "--json"]
    assert main([*asked, "--engine-args=--max-model-len 32768"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kv_tokens"] > report["logged_kv_tokens"] > 32_768
    assert report["logged_kv_tokens"] == int(report["logged_max_concurrency"] * 32_768)
    assert report["kv_bytes_reserved_per_sequence"] == report["kv_bytes_needed"] > report["kv_bytes_per_sequence"]


def _size(capsys: Captured, model: str, accelerator: str, arguments: str, *more: str) -> dict[str, Any]:
    asked = ["size", model, "--accelerator", accelerator, "--engine", "vllm", f"--engine-args={arguments}", "--json"]
    main([*asked, *more])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_settings_of_an_engine_hold_in_the_whole_answer_of_size(capsys: Captured) -> None:
    few = _size(capsys, "gemma-3-27b-it", "A100-SXM-80GB", "--max-model-len 65536 --max-num-batched-tokens 2048")
    many = _size(capsys, "gemma-3-27b-it", "A100-SXM-80GB", "--max-model-len 65536 --max-num-batched-tokens 16384")
    assert (few["verdict"], many["verdict"]) == ("starts", "does_not_start")
    assert [fit["count"] for fit in few["fits"]] == [1]
    assert [fit["count"] for fit in many["fits"]] == [2]
    assert many["kv_in_flight_tokens"] == 8 * few["kv_in_flight_tokens"]
    wide = _size(capsys, "Qwen/Qwen3-1.7B", "L4", "--dtype float32 --max-num-seqs 4")
    assert (wide["dtype"], wide["kv_dtype"]) == ("fp32", "fp32")
    assert wide["weights_bytes"] == 4 * wide["parameters"]
    assert wide["fits"][0]["max_sequences"] == 4
    told = _size(capsys, "Qwen/Qwen3-1.7B", "L4", "--max-model-len 1000")
    assert "more than the longest context of 1,000" in told["refused"][0]["reason"]


def test_requests_longer_than_the_engine_takes_are_a_no(capsys: Captured) -> None:
    llama = ["size", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "H100-SXM-80GB"]
    assert main([*llama, "--input-tokens", "1000000"]) == 1
    assert "Requests of that length are refused: 1,000,256 tokens" in capsys.readouterr().out
    assert main([*llama, "--engine", "vllm", "--input-tokens", "1000000"]) == 1
    assert "It starts" in (shown := capsys.readouterr().out)
    assert "Requests of that length are refused" in shown
    assert main([*llama, "--engine", "vllm", "--engine-args", "--max-model-len 1000"]) == 0  # no length was asked about
    assert main([*llama, "--engine", "tensorrt-llm", "--input-tokens", "9000", "--json"]) == 1
    capsys.readouterr()


def test_free_memory_holds_for_the_accelerators_too(capsys: Captured) -> None:
    asked = ["size", "Qwen/Qwen3-1.7B", "--accelerator", "L4", "--engine", "vllm", "--free-memory", "5GiB", "--json"]
    assert main(asked) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["fits"] == []
    assert "5 GiB free" in report["refused"][0]["reason"].replace("5.0", "5").replace("5.00", "5")


def test_arguments_that_the_engine_does_not_know_are_bad_input(capsys: Captured) -> None:
    asked = ["size", "Qwen/Qwen3-1.7B", "--accelerator", "L4", "--engine", "vllm", "--engine-version", "0.32.0"]
    assert main([*asked, "--engine-args", "--max-modle-len 8192"]) == 2
    assert "did you mean --max-model-len?" in capsys.readouterr().err


def test_verdict_and_ladder_agree_about_ranks_that_share_experts(capsys: Captured) -> None:
    spread = "-dp 16 --enable-expert-parallel"
    found = _size(capsys, "deepseek-ai/DeepSeek-R1", "H100-SXM-80GB", spread)
    assert (found["verdict"], found["fits"]) == ("does_not_start", [])
    mended = _size(capsys, "deepseek-ai/DeepSeek-R1", "H100-SXM-80GB", f"{spread} {found['fix']}")
    assert mended["verdict"] == "starts"
    assert [(fit["count"], fit["split"]) for fit in mended["fits"]] == [(16, "given")]


def test_more_free_memory_than_the_device_has_is_refused(capsys: Captured) -> None:
    asked = ["size", "Qwen/Qwen3-1.7B", "--accelerator", "L4", "--engine", "vllm", "--free-memory"]
    assert main([*asked, "60GiB"]) == 2
    assert "RS0501" in capsys.readouterr().err
    assert main([*asked, "60GiB", "--device-memory", "64GiB"]) == 0

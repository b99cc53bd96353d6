"""What the load client costs, against the built-in server: tokens per CPU second and memory.

With guidellm installed somewhere, RIGHTSLICE_GUIDELLM=/path/to/guidellm runs it against the same server. Its CPU
seconds are those of all its processes; both clients pay their start.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rightslice.adapters.endpoint import Sending, new_event_loop, play
from rightslice.adapters.exchanging import Target
from rightslice.loadtesting.dialects import Prompt, Wanted
from rightslice.loadtesting.schedule import ClosedLoop, Limits

TOKENS = 200
ITL_MS = 40.0
STREAMS = 256
ROUNDS = 3
MANY_STREAMS = 1000


@contextmanager
def stub() -> Iterator[str]:
    """The built-in server in a process of its own."""
    arguments = ("-m", "rightslice.adapters.stub", "--ttft-ms", "100", "--itl-ms", str(ITL_MS))
    with subprocess.Popen(  # noqa: S603
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no streams")
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(30)


def run(streams: int, rounds: int, url: str) -> None:
    """One closed loop; prints tokens, CPU seconds of the run and of the whole process, peak memory in MB."""
    played = new_event_loop().run_until_complete(
        play(
            Sending(
                Target(url),
                Wanted("chat", "stub"),
                ClosedLoop(streams),
                Limits(streams * rounds),
                lambda _: Prompt("a b c", TOKENS),
            )
        )
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    done = [e for e in played.exchanges if e.completed]
    print(
        json.dumps(
            {
                "tokens": sum(e.output_tokens for e in done),
                "failed": len(played.exchanges) - len(done),
                "cpu_s": played.client.cpu_s,
                "process_cpu_s": usage.ru_utime + usage.ru_stime,
                "peak_mb": usage.ru_maxrss / 1024,
            }
        )
    )


def ours(streams: int, rounds: int) -> dict[str, float]:
    """`run` in a fresh process."""
    with stub() as url:
        command = (sys.executable, __file__, str(streams), str(rounds), url)
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found: dict[str, float] = json.loads(out)
    return found


def guidellm(program: str) -> float:
    """Tokens per CPU second of guidellm at the same load."""
    with stub() as url:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = (
            *(program, "benchmark", "--target", url, "--model", "stub", "--profile", "concurrent"),
            *("--rate", str(STREAMS), "--max-requests", str(STREAMS * ROUNDS)),
            *("--data", f"prompt_tokens=16,output_tokens={TOKENS}"),
        )
        environment = {**os.environ, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
        subprocess.run(command, check=True, capture_output=True, env=environment)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return STREAMS * ROUNDS * TOKENS / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured() -> dict[str, float]:
    """Tokens per CPU second of the run and of the whole process, memory with many streams, and the peer's."""
    figures = ours(STREAMS, ROUNDS)
    found = {
        "tokens_per_cpu_s": figures["tokens"] / figures["cpu_s"],
        "tokens_per_process_cpu_s": figures["tokens"] / figures["process_cpu_s"],
        "many_streams_mb": ours(MANY_STREAMS, 1)["peak_mb"],
    }
    if program := os.environ.get("RIGHTSLICE_GUIDELLM"):
        found["guidellm"] = guidellm(program)
    return found


if __name__ == "__main__":
    if len(sys.argv) == 4:
        run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        for name, value in measured().items():
            print(f"{name:<28} {value:>12,.1f}")

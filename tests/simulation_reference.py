"""The simulator's rules in plain Python, one engine step after the other: slow, easy to read, the oracle of the tests.

It is written from the rules that rightslice.simulation states (kernel.py: order within one instant; engine.py: LLM
replicas; stage.py: processor sharing; users.py: pipelines) and shares no code with them. All integers are exact; the
only floats are those of processor sharing, computed in the same order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rightslice.simulation import ClosedPipeline, LlmServer, Scenario, StageServer

PS = 10**12
NOT_YET, FAILED = -1, -2


@dataclass(eq=False)
class Job:
    """One request at one replica. `cached` tokens are in its cache, `answered` of `answer` have been given."""

    prompt: int
    answer: int
    user: User | None = None
    cached: int = 0
    answered: int = 0
    blocks: int = 0
    chunk: int = 0
    decodes: bool = False
    first_ps: int = NOT_YET
    finish_ps: int = NOT_YET
    goal: float = 0.0

    @property
    def known(self) -> int:
        """Tokens in the cache before the next one appears."""
        return self.prompt + self.answered


@dataclass(eq=False)
class Replica:
    """What all replicas have in common; `due` is when something ends here."""

    waiting: deque[Job] = field(default_factory=deque)
    running: list[Job] = field(default_factory=list)
    due: int | None = None
    busy_ps: int = 0
    kv_block_ps: int = 0
    batch_ps: int = 0
    peak_blocks: int = 0
    preemptions: int = 0

    @property
    def outstanding(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def totals(self) -> list[int]:
        return [self.busy_ps, self.kv_block_ps, self.batch_ps, self.peak_blocks, self.preemptions]


@dataclass(eq=False)
class Engine(Replica):
    """An LLM engine: vLLM V1, first come first served."""

    server: LlmServer = field(kw_only=True)
    horizon_ps: int = field(kw_only=True)

    def serves(self, job: Job) -> bool:
        fits = self.blocks_for(job.prompt + job.answer - 1) <= self.server.kv_blocks
        return fits and job.prompt + job.answer <= self.server.max_model_len

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.server.block_size_tokens)

    @property
    def free(self) -> int:
        left = self.server.kv_blocks - sum(job.blocks for job in self.running)
        assert left >= 0, "blocks are never negative"
        return left

    def evict_last(self) -> None:
        victim = self.running.pop()
        victim.blocks = victim.cached = 0
        victim.decodes = False
        self.waiting.appendleft(victim)
        self.preemptions += 1

    def serve_running(self, budget: int) -> int:
        """Tokens of this step for the jobs that run; the budget that is left."""
        position = 0
        while position < len(self.running):
            job = self.running[position]
            job.chunk = 1 if job.decodes else min(job.known - job.cached, budget)
            assert 1 <= job.chunk <= budget, "every running job is served"
            lacking = max(self.blocks_for(job.cached + job.chunk) - job.blocks, 0)
            while lacking > self.free and job in self.running:
                self.evict_last()
            if job in self.running:
                job.blocks += lacking
                budget -= job.chunk
                position += 1
        return budget

    def admit(self, budget: int) -> None:
        """Waiting jobs join from the front, each with the blocks of its whole prompt."""
        while self.waiting and budget and len(self.running) < self.server.max_num_seqs:
            job = self.waiting[0]
            if self.blocks_for(job.known) > self.free:
                break
            self.running.append(self.waiting.popleft())
            job.blocks = self.blocks_for(job.known)
            job.chunk = min(job.known, budget)
            budget -= job.chunk

    def start(self, now: int) -> None:
        if self.due is not None:
            return
        evictions = self.preemptions
        budget = self.serve_running(self.server.max_num_batched_tokens)
        waiting = len(self.waiting)
        self.admit(budget)
        assert evictions == self.preemptions or waiting == len(self.waiting), "nobody joins in a step that evicts"
        if not self.running:
            assert not self.waiting, "work conserving"
            return
        decoding = [job for job in self.running if job.decodes]
        prefilling = [job for job in self.running if not job.decodes]
        work = sum(job.chunk * job.cached + job.chunk * (job.chunk + 1) // 2 for job in prefilling)
        duration = self.server.costs.step_time_ps(
            sum(job.chunk for job in prefilling), work, len(decoding), sum(job.cached + 1 for job in decoding)
        )
        self.due = now + duration
        used, span = self.server.kv_blocks - self.free, min(duration, self.horizon_ps - now)
        self.busy_ps += span
        self.kv_block_ps += span * used
        self.batch_ps += span * len(self.running)
        self.peak_blocks = max(self.peak_blocks, used)

    def end(self, now: int) -> list[Job]:
        """Hand out the tokens of the step; the jobs that are done, in order of admission."""
        self.due = None
        for job in self.running:
            job.cached += job.chunk
            if job.cached == job.known:
                job.answered += 1
                job.decodes = True
                job.first_ps = now if job.first_ps == NOT_YET else job.first_ps
        done = [job for job in self.running if job.answered == job.answer]
        self.running = [job for job in self.running if job.answered < job.answer]
        return done

    def close(self) -> None:
        """The horizon: a step's share was counted when it started."""


@dataclass(eq=False)
class Stage(Replica):
    """Processor sharing: n in service progress by 1 / latency[n] per picosecond each."""

    server: StageServer = field(kw_only=True)
    horizon_ps: int = field(kw_only=True)
    since: int = 0
    progress: float = 0.0

    def serves(self, _job: Job) -> bool:
        return True

    def latency(self, count: int) -> int:
        return int(self.server.costs.latency_ps[count])

    def settle(self, now: int) -> None:
        if self.running:
            self.progress += float(now - self.since) / self.latency(len(self.running))
            self.busy_ps += now - self.since
            self.batch_ps += (now - self.since) * len(self.running)
        self.since = now

    def end(self, now: int) -> list[Job]:
        """The jobs whose work ends within half a picosecond."""
        self.settle(now)
        self.due = None
        latency, done = self.latency(len(self.running)), []
        while self.running and (self.running[0].goal - self.progress) * latency <= 0.5:
            job = self.running.pop(0)
            job.first_ps = now
            done.append(job)
        return done

    def start(self, now: int) -> None:
        self.settle(now)
        if not self.running:
            self.progress = 0.0
        elif self.progress > 1.0:
            for job in self.running:
                job.goal -= self.progress
            self.progress = 0.0
        while self.waiting and len(self.running) < self.server.costs.max_streams:
            job = self.waiting.popleft()
            job.goal = self.progress + 1.0
            self.running.append(job)
        self.due = None
        if self.running:
            rest = (self.running[0].goal - self.progress) * self.latency(len(self.running))
            self.due = now + round(max(rest, 0.0))

    def close(self) -> None:
        self.settle(self.horizon_ps)


@dataclass(eq=False)
class User:
    """One user of a pipeline; `row` is the record of the request under way."""

    number: int
    pipeline: int
    due: int | None
    stage: int = 0
    row: list[int] = field(default_factory=list)


def whole_ps(seconds: float) -> int:
    return round(seconds * 1e12)


class Reference:
    """Plays a scenario. Results: `jobs` (the open-loop requests, by time), `rows` of pipeline requests, `replicas`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.horizon_ps = whole_ps(scenario.horizon_s)
        names = dict.fromkeys(s.model for s in scenario.servers)
        self.replicas = [
            self.replica(s) for name in names for s in scenario.servers if s.model == name for _ in range(s.replicas)
        ]
        requests = [
            (int(when), index, Job(int(prompt), int(answer)))
            for index, c in enumerate(scenario.classes)
            for when, prompt, answer in zip(
                c.arrivals.arrival_ps, c.arrivals.input_tokens, c.arrivals.output_tokens, strict=True
            )
            if when <= self.horizon_ps
        ]
        requests.sort(key=lambda request: request[0])
        self.jobs = [job for _, _, job in requests]
        self.coming = deque(requests)
        self.users: list[User] = []
        for p, pipeline in enumerate(scenario.pipelines):
            for i in range(pipeline.concurrent):
                start = whole_ps(i * (pipeline.ramp_up_s / pipeline.concurrent))
                self.users.append(User(len(self.users), p, start if start < self.stop_ps(pipeline) else None))
        self.started = [0] * len(scenario.pipelines)
        self.rows: list[list[int]] = []
        self.longest = max((len(p.stages) for p in scenario.pipelines), default=0)
        self.touched: dict[int, Engine | Stage] = {}

    def replica(self, server: LlmServer | StageServer) -> Engine | Stage:
        if isinstance(server, LlmServer):
            return Engine(server=server, horizon_ps=self.horizon_ps)
        return Stage(server=server, horizon_ps=self.horizon_ps)

    def stop_ps(self, pipeline: ClosedPipeline) -> int:
        return whole_ps(pipeline.ramp_up_s + pipeline.hold_s)

    def submit(self, job: Job, model: str) -> bool:
        """To the replica with the fewest outstanding jobs; False when it cannot serve the job."""
        able = [replica for replica in self.replicas if replica.server.model == model]
        if not able:
            return False
        chosen = min(able, key=lambda replica: replica.outstanding)
        if not chosen.serves(job):
            return False
        chosen.waiting.append(job)
        self.touched[id(chosen)] = chosen
        return True

    def play(self) -> Reference:
        while True:
            entities: list[Engine | Stage | User] = [*self.replicas, *self.users]
            dues = [e.due for e in entities if e.due is not None] + [when for when, _, _ in list(self.coming)[:1]]
            now = min(dues, default=self.horizon_ps + 1)
            if now > self.horizon_ps:
                break
            while (entity := next((e for e in entities if e.due == now), None)) is not None:
                self.act(entity, now)
            while self.coming and self.coming[0][0] == now:
                _, index, job = self.coming.popleft()
                if not self.submit(job, self.scenario.classes[index].model):
                    job.finish_ps = FAILED
            for replica in self.touched.values():
                replica.start(now)
            self.touched.clear()
        for replica in self.replicas:
            replica.close()
        return self

    def act(self, entity: Engine | Stage | User, now: int) -> None:
        if isinstance(entity, User):
            pipeline = entity.pipeline
            entity.due, entity.stage = None, 0
            entity.row = [pipeline, self.started[pipeline], entity.number, now, *[NOT_YET] * (1 + 3 * self.longest)]
            self.rows.append(entity.row)
            self.started[pipeline] += 1
            self.enter_stage(entity, now)
            return
        self.touched[id(entity)] = entity
        for job in entity.end(now):
            job.finish_ps = now
            if job.user is not None:
                self.leave_stage(job.user, job, now)

    def enter_stage(self, user: User, now: int) -> None:
        pipeline = self.scenario.pipelines[user.pipeline]
        drawn = pipeline.lengths[user.stage] if pipeline.lengths else None
        prompt = answer = 1
        if drawn is not None:
            sample = user.row[1] % len(drawn.input_tokens)
            prompt, answer = int(drawn.input_tokens[sample]), int(drawn.output_tokens[sample])
        user.row[5 + 3 * user.stage] = now
        if not self.submit(Job(prompt, answer, user), pipeline.stages[user.stage]):
            self.end_pass(user, FAILED, now)

    def leave_stage(self, user: User, job: Job, now: int) -> None:
        user.row[6 + 3 * user.stage] = job.first_ps
        user.row[7 + 3 * user.stage] = now
        user.stage += 1
        if user.stage < len(self.scenario.pipelines[user.pipeline].stages):
            self.enter_stage(user, now)
        else:
            self.end_pass(user, now, now)

    def end_pass(self, user: User, outcome: int, now: int) -> None:
        pipeline = self.scenario.pipelines[user.pipeline]
        user.row[4] = outcome
        again = now + whole_ps(pipeline.think_time_s)
        hopeless = outcome == FAILED and again == now
        user.due = None if again >= self.stop_ps(pipeline) or hopeless else again

"""The simulator's rules in plain Python, one engine step after the other: slow, easy to read, the oracle of the tests.

It is written from the rules that rightslice.simulation states (kernel.py: order within one instant; engine.py: LLM
replicas; stage.py: processor sharing; users.py: pipelines; routing.py; control.py) and shares no code with them. All
integers are exact; the only floats are those of processor sharing and of scores, computed in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rightslice.core.rng import generator
from rightslice.simulation import ClosedPipeline, LlmServer, OpenClass, Routing, Scenario, StageServer

PS = 10**12
NOT_YET, FAILED, LOST, TIMED_OUT = -1, -2, -3, -4


@dataclass(eq=False)
class Job:
    """One request at one replica. `cached` tokens are in its cache, `answered` of `answer` have been given."""

    model: str
    prompt: int
    answer: int
    user: User | None = None
    retries: int = 0
    priority: int = 0
    prefix: tuple[int, ...] = ()
    hit_tokens: int = NOT_YET
    entered: int = 0
    deadline: int | None = None
    cached: int = 0
    answered: int = 0
    blocks: int = 0
    chunk: int = 0
    decodes: bool = False
    first_ps: int = NOT_YET
    finish_ps: int = NOT_YET
    goal: float = 0.0

    def forget(self) -> None:
        """Its cache is gone: prompt and answer so far are computed again."""
        self.cached = self.blocks = 0
        self.decodes = False

    def expired(self, now: int) -> bool:
        return self.deadline is not None and self.deadline <= now

    @property
    def known(self) -> int:
        """Tokens in the cache before the next one appears."""
        return self.prompt + self.answered


def first_of_equals(jobs: deque[Job]) -> deque[Job]:
    """Higher priorities first; jobs of one priority stay in order."""
    return deque(sorted(jobs, key=lambda job: -job.priority))


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
    finished: int = 0
    condition: str = "ready"
    slowdown: float = 1.0
    seen: tuple[int, float] = (0, 0.0)

    def slowed(self, time_ps: int) -> int:
        return time_ps if self.slowdown == 1.0 else round(time_ps * self.slowdown)

    def drop_expired(self, now: int) -> None:
        """Who is first in line and has waited too long."""
        while self.waiting and self.waiting[0].expired(now):
            self.waiting.popleft().finish_ps = TIMED_OUT

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
    prefix_tokens: int = 0
    since: int = 0
    ratio: int = 700_000_000  # of what answers have left that is expected to come (SGLang), in billionths
    retracting: bool = False
    idle: list[int] = field(default_factory=list)  # known blocks of prefixes without users, left longest ago first

    def serves(self, job: Job) -> bool:
        fits = self.blocks_for(job.prompt + job.answer - 1) <= self.server.kv_blocks
        return fits and job.prompt + job.answer <= self.server.max_model_len

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.server.block_size_tokens)

    @property
    def shared(self) -> set[int]:
        """Prefix blocks in use."""
        return {block for job in self.running for block in job.prefix} if self.prefix_tokens else set()

    @property
    def weight(self) -> int:
        return self.prefix_tokens // self.server.block_size_tokens

    @property
    def free(self) -> int:
        own = sum(job.blocks - len(job.prefix if self.prefix_tokens else ()) * self.weight for job in self.running)
        left = self.server.kv_blocks - own - len(self.shared) * self.weight
        assert left >= 0, "blocks are never negative"
        return left

    @property
    def used(self) -> int:
        return self.server.kv_blocks - self.free

    def drop_idle(self) -> None:
        while len(self.idle) * self.weight > self.free:
            self.idle.pop(0)

    def leave(self, job: Job) -> None:
        """A job that runs no more: the blocks of its prefix stay known, the last one left first."""
        before = self.shared
        self.running.remove(job)
        gone = before - self.shared
        self.idle += [block for block in reversed(job.prefix) if block in gone]

    def known_tokens(self, job: Job) -> int:
        if not self.prefix_tokens:
            return 0
        known, found = self.shared | set(self.idle), 0
        while found < len(job.prefix) and job.prefix[found] in known:
            found += 1
        return min(found, (job.known - 1) // self.prefix_tokens) * self.prefix_tokens

    def evict(self) -> None:
        """Of the lowest priority, the one admitted last; SGLang: fewest tokens answered, longest prompt, last."""
        if self.server.admission == "estimate":
            victim = min(reversed([j for j in self.running if j.decodes]), key=lambda j: (j.answered, -j.prompt))
        else:
            lowest = min(job.priority for job in self.running)
            victim = [job for job in self.running if job.priority == lowest][-1]
        self.leave(victim)
        victim.forget()
        self.waiting.appendleft(victim)
        self.waiting = first_of_equals(self.waiting)
        self.preemptions += 1

    def serve_running(self) -> None:
        """Tokens of this step for the jobs that run."""
        for job in list(self.running):
            if job not in self.running:
                continue
            before = self.running[: self.running.index(job)]
            budget = self.server.max_num_batched_tokens - sum(other.chunk for other in before)
            job.chunk = 1 if job.decodes else min(job.known - job.cached, budget)
            assert 1 <= job.chunk <= budget, "every running job is served"
            lacking = max(self.blocks_for(job.cached + job.chunk) - job.blocks, 0)
            while lacking > self.free and job in self.running:
                self.evict()
            if job in self.running:
                job.blocks += lacking

    def admit(self) -> None:
        """Waiting jobs join from the front, each with the blocks of its whole prompt, or answer."""
        budget = self.server.max_num_batched_tokens - sum(job.chunk for job in self.running)
        self.drop_idle()
        expected = -(-sum(job.answer - job.answered for job in self.running) * self.ratio // 10**9)
        while self.waiting and budget and len(self.running) < self.server.max_num_seqs:
            job = self.waiting[0]
            whole = self.server.admission == "answer"
            blocks = self.blocks_for(job.prompt + job.answer - 1 if whole else job.known)
            known = self.known_tokens(job)
            in_use = sum(block in self.shared for block in job.prefix) * self.weight
            if blocks - in_use > self.free:
                break
            if self.server.admission == "estimate":
                with_answer = self.blocks_for(job.prompt + job.answer - 1)
                if with_answer - in_use + self.blocks_for(expected) > self.free:
                    break
                expected += job.answer - job.answered - 1
            self.running.append(self.waiting.popleft())
            job.blocks = blocks
            self.idle = [block for block in self.idle if block not in self.shared]
            self.drop_idle()
            job.deadline = None
            job.cached = known
            job.hit_tokens = known if job.hit_tokens == NOT_YET else job.hit_tokens
            job.chunk = min(job.known - known, budget)
            budget -= job.chunk

    def start(self, now: int) -> None:
        if self.due is not None:
            return
        self.drop_expired(now)
        evictions = self.preemptions
        self.serve_running()
        self.retracting = evictions < self.preemptions
        if not self.retracting:
            self.admit()
        elif self.server.admission == "estimate":
            decoding = [job for job in self.running if job.decodes]
            answered, promised = sum(job.answered for job in decoding), sum(job.answer for job in decoding)
            self.ratio = min(10**9, (answered + 20 * len(decoding)) * 10**9 // (promised + 1))
        self.drop_idle()
        if not self.running:
            assert not self.waiting, "work conserving"
            self.ratio = 700_000_000
            return
        decoding = [job for job in self.running if job.decodes]
        prefilling = [job for job in self.running if not job.decodes]
        work = sum(job.chunk * job.cached + job.chunk * (job.chunk + 1) // 2 for job in prefilling)
        costs = self.server.costs.scaled(self.slowdown)
        duration = costs.step_time_ps(
            sum(job.chunk for job in prefilling), work, len(decoding), sum(job.cached + 1 for job in decoding)
        )
        self.due = now + duration
        self.since = now
        self.peak_blocks = max(self.peak_blocks, self.used)

    def count(self, now: int) -> None:
        span = now - self.since
        self.busy_ps += span
        self.kv_block_ps += span * self.used
        self.batch_ps += span * len(self.running)

    def end(self, now: int) -> list[Job]:
        """Hand out the tokens of the step; the jobs that are done, in order of admission."""
        self.count(now)
        self.due = None
        if any(job.decodes for job in self.running) and not self.retracting:
            self.ratio = max(98_000_000, self.ratio - 602_000_000 // 600)
        for job in self.running:
            job.cached += job.chunk
            if job.cached == job.known:
                job.answered += 1
                job.decodes = True
                job.first_ps = now if job.first_ps == NOT_YET else job.first_ps
        done = [job for job in self.running if job.answered == job.answer]
        for job in done:
            self.leave(job)
        return done

    def stop(self, now: int) -> None:
        """The step under way comes to nothing."""
        if self.due is not None:
            self.count(now)
        self.due = None

    def slow_down(self, _now: int, factor: float) -> None:
        self.slowdown = factor


@dataclass(eq=False)
class Stage(Replica):
    """Processor sharing: n in service progress by 1 / latency[n] per picosecond each."""

    server: StageServer = field(kw_only=True)
    used: int = 0
    since: int = 0
    progress: float = 0.0

    def serves(self, _job: Job) -> bool:
        return True

    def latency(self, count: int) -> int:
        return self.slowed(int(self.server.costs.latency_ps[count]))

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
        self.drop_expired(now)
        while self.waiting and len(self.running) < self.server.costs.max_streams:
            job = self.waiting.popleft()
            job.deadline = None
            job.goal = self.progress + 1.0
            self.running.append(job)
            self.drop_expired(now)
        self.due = None
        if self.running:
            rest = (self.running[0].goal - self.progress) * self.latency(len(self.running))
            self.due = now + round(max(rest, 0.0))

    def stop(self, now: int) -> None:
        self.settle(now)
        self.due = None

    def slow_down(self, now: int, factor: float) -> None:
        self.settle(now)
        self.slowdown = factor


@dataclass(eq=False)
class Batch(Replica):
    """One batch at a time; the first in line waits at most for the delay."""

    server: StageServer = field(kw_only=True)
    used: int = 0
    since: int = 0

    def serves(self, _job: Job) -> bool:
        return True

    def count(self, now: int) -> None:
        if self.running:
            self.busy_ps += now - self.since
            self.batch_ps += (now - self.since) * len(self.running)

    def end(self, now: int) -> list[Job]:
        self.count(now)
        self.due = None
        done, self.running = self.running, []
        for job in done:
            job.first_ps = now
        return done

    def start(self, now: int) -> None:
        if self.running:
            return
        self.due, most = None, self.server.costs.max_streams
        self.drop_expired(now)
        if self.waiting:
            self.due = self.waiting[0].entered + whole_ps(self.server.batch_delay_s or 0.0)
        if self.due is None or (len(self.waiting) < most and now < self.due):
            return
        self.running = [self.waiting.popleft() for _ in range(min(len(self.waiting), most))]
        for job in self.running:
            job.deadline = None
        self.since = now
        self.due = now + self.slowed(int(self.server.costs.latency_ps[len(self.running)]))

    def stop(self, now: int) -> None:
        self.count(now)
        self.due = None

    def slow_down(self, _now: int, factor: float) -> None:
        self.slowdown = factor


AnyReplica = Engine | Stage | Batch


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


class Router:
    """Chooses among the ready replicas of one model."""

    def __init__(self, model: str, routing: Routing) -> None:
        self.routing = routing
        self.turn = 0
        self.number = int(generator(routing.seed, "router", model).integers(2**62))
        self.read_ps: int | None = None

    def draw(self, count: int) -> int:
        self.number = (self.number * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.number >> 33) % count

    def choose(self, ready: list[AnyReplica], job: Job, now: int) -> AnyReplica:
        if self.routing.policy == "round-robin":
            at = self.turn % len(ready)
            self.turn = at + 1
            return ready[at]
        if self.routing.policy == "two-choices":
            pair = [ready[self.draw(len(ready))], ready[self.draw(len(ready))]]
            return min(pair, key=lambda replica: replica.outstanding)
        if self.routing.policy == "score":
            if self.read_ps is None or now - self.read_ps >= whole_ps(self.routing.signal_age_s):
                self.read_ps = now
                for replica in ready:
                    blocks = replica.server.kv_blocks if isinstance(replica, Engine) else 0
                    replica.seen = (len(replica.waiting), replica.used / blocks if blocks else 0.0)
            return min(ready, key=lambda replica: self.score(replica, job))
        return min(ready, key=lambda replica: replica.outstanding)

    def score(self, replica: AnyReplica, job: Job) -> float:
        score = self.routing.queue_weight * replica.seen[0] + self.routing.kv_weight * replica.seen[1]
        if self.routing.prefix_weight > 0.0:
            known = replica.known_tokens(job) if isinstance(replica, Engine) else 0
            score += self.routing.prefix_weight * (1.0 - known / job.known)
        return score


class Reference:
    """Plays a scenario. Results: `jobs` (the open-loop requests, by time), `rows` of pipeline requests, `replicas`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.horizon_ps = whole_ps(scenario.horizon_s)
        names = dict.fromkeys(s.model for s in scenario.servers)
        self.replicas = [
            self.replica(s) for name in names for s in scenario.servers if s.model == name for _ in range(s.replicas)
        ]
        requests = [request for c in scenario.classes for request in self.requests_of(c)]
        requests.sort(key=lambda request: request[0])
        self.jobs = [job for _, job in requests]
        self.coming = deque(requests)
        self.users: list[User] = []
        for p, pipeline in enumerate(scenario.pipelines):
            for i in range(pipeline.concurrent):
                start = whole_ps(i * (pipeline.ramp_up_s / pipeline.concurrent))
                self.users.append(User(len(self.users), p, start if start < self.stop_ps(pipeline) else None))
        self.started = [0] * len(scenario.pipelines)
        self.rows: list[list[int]] = []
        self.longest = max((len(p.stages) for p in scenario.pipelines), default=0)
        self.touched: dict[int, AnyReplica] = {}
        models = dict.fromkeys([r.server.model for r in self.replicas])
        self.queues: dict[str, deque[Job]] = {model: deque() for model in models}
        self.routers = {model: Router(model, scenario.routing.get(model, Routing())) for model in models}
        self.requeued = 0

    def requests_of(self, traffic: OpenClass) -> list[tuple[int, Job]]:
        columns = (traffic.arrivals.arrival_ps, traffic.arrivals.input_tokens, traffic.arrivals.output_tokens)
        found = []
        for i, (when, prompt, answer) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            job = Job(traffic.model, prompt, answer, priority=traffic.priority)
            if traffic.timeout_s is not None:
                job.deadline = when + whole_ps(traffic.timeout_s)
            if traffic.prefixes:
                ids = traffic.prefixes.ids[traffic.prefixes.starts[i] : traffic.prefixes.starts[i + 1]].tolist()
                job.prefix = tuple(ids[: prompt // traffic.prefixes.block_tokens])
            if when <= self.horizon_ps:
                found.append((when, job))
        return found

    def replica(self, server: LlmServer | StageServer) -> AnyReplica:
        if isinstance(server, LlmServer):
            sizes = [c.prefixes.block_tokens for c in self.scenario.classes if c.prefixes and c.model == server.model]
            return Engine(server=server, prefix_tokens=sizes[0] if sizes and server.prefix_caching else 0)
        return Stage(server=server) if server.batch_delay_s is None else Batch(server=server)

    def stop_ps(self, pipeline: ClosedPipeline) -> int:
        return whole_ps(pipeline.ramp_up_s + pipeline.hold_s)

    def ready(self, model: str) -> list[AnyReplica]:
        return [r for r in self.replicas if r.server.model == model and r.condition == "ready"]

    def submit(self, job: Job, now: int) -> bool:
        """To a ready replica, or to the queue of a model that has none; False when it can never be served."""
        if job.model not in self.queues:
            return False
        ready = self.ready(job.model)
        if not ready:
            self.queues[job.model].append(job)
            self.queues[job.model] = first_of_equals(self.queues[job.model])
            return True
        chosen = self.routers[job.model].choose(ready, job, now)
        if not chosen.serves(job):
            return False
        job.entered = now
        chosen.waiting.append(job)
        chosen.waiting = first_of_equals(chosen.waiting)
        self.touched[id(chosen)] = chosen
        return True

    def play(self) -> Reference:
        self.advance(self.horizon_ps)
        for replica in self.replicas:
            replica.stop(self.horizon_ps)
        return self

    def advance(self, until_ps: int) -> None:
        while True:
            entities: list[AnyReplica | User] = [*self.replicas, *self.users]
            dues = [e.due for e in entities if e.due is not None] + [when for when, _ in list(self.coming)[:1]]
            now = min(dues, default=until_ps + 1)
            if now > until_ps:
                break
            while (entity := next((e for e in entities if e.due == now), None)) is not None:
                self.act(entity, now)
            while self.coming and self.coming[0][0] == now:
                _, job = self.coming.popleft()
                if not self.submit(job, now):
                    job.finish_ps = FAILED
            self.start_touched(now)

    def start_touched(self, now: int) -> None:
        for replica in self.touched.values():
            replica.start(now)
        self.touched.clear()

    def control(self, now: int, conditions: Mapping[int, str], slowdowns: Mapping[int, float]) -> None:
        """Orders at a boundary, after everything else that happens then."""
        for number, replica in enumerate(self.replicas):
            if number in slowdowns:
                replica.slow_down(now, slowdowns[number])
                self.touched[id(replica)] = replica
            if number in conditions:
                replica.condition = conditions[number]
                if replica.condition == "gone":
                    self.lose(replica, now)
        for model in self.queues:
            if any(self.replicas[number].server.model == model for number in conditions):
                self.routers[model].read_ps = None
            while self.queues[model] and self.ready(model):
                job = self.queues[model].popleft()
                if job.expired(now):
                    job.finish_ps = TIMED_OUT
                elif not self.submit(job, now):
                    self.give_up(job, FAILED, now)
        self.start_touched(now)

    def lose(self, replica: AnyReplica, now: int) -> None:
        """Its requests go to the front of the queue in their order, or are lost when they have no retry left."""
        replica.stop(now)
        jobs = [*replica.running, *replica.waiting]
        replica.running.clear()
        replica.waiting.clear()
        kept = [job for job in jobs if job.retries < self.scenario.retries]
        for job in jobs:
            job.forget()
            if job in kept:
                job.retries += 1
            else:
                self.give_up(job, LOST, now)
        self.requeued += len(kept)
        model = replica.server.model
        self.queues[model] = first_of_equals(deque([*kept, *self.queues[model]]))
        if isinstance(replica, Engine):
            replica.idle.clear()
            replica.ratio = 700_000_000

    def give_up(self, job: Job, outcome: int, now: int) -> None:
        if job.user is None:
            job.finish_ps = outcome
        else:
            self.end_pass(job.user, outcome, now)

    def act(self, entity: AnyReplica | User, now: int) -> None:
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
            entity.finished += 1
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
        if not self.submit(Job(pipeline.stages[user.stage], prompt, answer, user, priority=pipeline.priority), now):
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

"""The simulator's rules in plain Python, one engine step after the other: slow, easy to read, the oracle of the tests.

It is written from the rules that rightslice.simulation states (kernel.py: order within one instant; engine.py: LLM
replicas; stage.py: processor sharing; users.py: pipelines; routing.py; orders.py) and shares no code with them. All
integers are exact; the only floats are those of processor sharing and of scores, computed in the same order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from rightslice.core.rng import generator
from rightslice.simulation import ClosedPipeline, LlmServer, Network, OpenClass, Routing, Scenario, StageServer
from simulation_reference_cache import PrefixCache
from simulation_reference_replicas import (
    FAILED,
    LOST,
    NOT_YET,
    SHED,
    TIMED_OUT,
    AnyReplica,
    Batch,
    Engine,
    Job,
    Stage,
    User,
    first_of_equals,
    whole_ps,
)


class Router:
    """Chooses among the ready replicas of one model."""

    def __init__(self, model: str, routing: Routing, network: Network | None) -> None:
        self.routing, self.network = routing, network
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
        if self.routing.policy == "nearest":
            return min(ready, key=lambda replica: self.near(replica, job))
        if self.routing.policy == "score":
            if self.read_ps is None or now - self.read_ps >= whole_ps(self.routing.signal_age_s):
                self.read_ps = now
                for replica in ready:
                    blocks = replica.server.kv_blocks if isinstance(replica, Engine) else 0
                    replica.seen = (len(replica.waiting), replica.used / blocks if blocks else 0.0)
            return min(ready, key=lambda replica: self.score(replica, job))
        return min(ready, key=lambda replica: replica.outstanding)

    def near(self, replica: AnyReplica, job: Job) -> tuple[float, int]:
        """Distance of the replica, infinite where too many wait, and its outstanding requests."""
        if len(replica.waiting) > self.routing.spill_queue or self.network is None:
            return math.inf, replica.outstanding
        return float(self.network.round_trip_s[job.client, replica.server.region]), replica.outstanding

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
        self.routers = {
            model: Router(model, scenario.routing.get(model, Routing()), scenario.network) for model in models
        }
        self.requeued = 0
        members = {(r.server.deployment, n): r for r, n in zip(self.replicas, self.numbers(), strict=True)}
        self.groups = [(group, [members[member] for member in group.members]) for group in scenario.sharing]

    def numbers(self) -> list[int]:
        """Each replica's number within its deployment."""
        names = [replica.server.deployment for replica in self.replicas]
        return [names[:at].count(name) for at, name in enumerate(names)]

    def requests_of(self, traffic: OpenClass) -> list[tuple[int, Job]]:
        columns = (traffic.arrivals.arrival_ps, traffic.arrivals.input_tokens, traffic.arrivals.output_tokens)
        found = []
        for i, (when, prompt, answer) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            job = Job(traffic.model, prompt, answer, priority=traffic.priority)
            if traffic.clients is not None:
                job.client = int(traffic.clients[i])
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
            block = server.block_size_tokens
            weight = sizes[0] // block if sizes else 0
            return Engine(server=server, cache=PrefixCache(block, weight if server.prefix_caching else 0))
        return Stage(server=server) if server.batch_delay_s is None else Batch(server=server)

    def stop_ps(self, pipeline: ClosedPipeline) -> int:
        return whole_ps(pipeline.ramp_up_s + pipeline.hold_s)

    def ready(self, model: str) -> list[AnyReplica]:
        return [r for r in self.replicas if r.server.model == model and r.condition == "ready"]

    def saturated(self, model: str) -> bool:
        """Whether no ready replica has room, as the model's gateway sees it."""
        gate = self.scenario.gateways[model]
        for replica in self.ready(model):
            blocks = replica.server.kv_blocks if isinstance(replica, Engine) else 0
            use = replica.used / blocks if blocks else 0.0
            if len(replica.waiting) <= gate.queue_depth and use <= gate.kv_use:
                return False
        return True

    def holds_back(self, model: str) -> bool:
        gate = self.scenario.gateways.get(model)
        return gate is not None and gate.flow_control and self.saturated(model)

    def come(self, job: Job, now: int) -> int:
        """A new request before its gateway: NOT_YET, or its end."""
        gate = self.scenario.gateways.get(job.model)
        if gate is not None and job.model in self.queues:
            if self.saturated(job.model) and job.priority < 0:
                return SHED
            if gate.flow_control and (self.queues[job.model] or self.saturated(job.model)):
                self.hold(job)
                return NOT_YET
        return NOT_YET if self.submit(job, now) else FAILED

    def hold(self, job: Job) -> None:
        self.queues[job.model].append(job)
        self.queues[job.model] = first_of_equals(self.queues[job.model])

    def submit(self, job: Job, now: int) -> bool:
        """To a ready replica, or to the queue of a model that has none; False when it can never be served."""
        if job.model not in self.queues:
            return False
        ready = self.ready(job.model)
        if not ready:
            self.hold(job)
            return True
        chosen = self.routers[job.model].choose(ready, job, now)
        if not chosen.serves(job):
            return False
        job.entered = now
        job.served = self.replicas.index(chosen)
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
                outcome = self.come(job, now)
                if outcome != NOT_YET:
                    job.finish_ps = outcome
            self.settle(now)

    def share_out(self, now: int) -> None:
        """Members of a group that something happened to have the speed that the busy ones leave them."""
        for group, members in self.groups:
            here = [member for member in members if id(member) in self.touched]
            for member in here:
                if member.could_start:
                    member.drop_expired(now)
            busy = [place for place, member in enumerate(members) if member.outstanding]
            for place, member in enumerate(members if here else []):
                factor = group.slowdown(place, busy)
                if factor != member.beside:
                    member.change_speed(now, member.ordered, factor)
                    self.touched[id(member)] = member

    def start_touched(self, now: int) -> None:
        self.share_out(now)
        for replica in self.touched.values():
            replica.start(now)
        self.touched.clear()

    def control(self, now: int, conditions: Mapping[int, str], slowdowns: Mapping[int, float]) -> None:
        """Orders at a boundary, after everything else that happens then."""
        for number, replica in enumerate(self.replicas):
            if number in slowdowns:
                replica.change_speed(now, slowdowns[number], replica.beside)
                self.touched[id(replica)] = replica
            if number in conditions:
                replica.condition = conditions[number]
                if replica.condition == "gone":
                    self.lose(replica, now)
        for model in self.queues:
            if any(self.replicas[number].server.model == model for number in conditions):
                self.routers[model].read_ps = None
            self.flush(model, now)
        self.settle(now)

    def flush(self, model: str, now: int) -> bool:
        """Route what waits for a replica; whether any left the queue."""
        left = False
        while self.queues[model] and self.ready(model) and not self.holds_back(model):
            left = True
            job = self.queues[model].popleft()
            if job.expired(now):
                job.finish_ps = TIMED_OUT
            elif not self.submit(job, now):
                self.give_up(job, FAILED, now)
        return left

    def settle(self, now: int) -> None:
        """Start what something happened to, until gateways let nobody in any more."""
        self.start_touched(now)
        held = [model for model in self.queues if model in self.scenario.gateways]
        while sum(self.flush(model, now) for model in held if self.scenario.gateways[model].flow_control):
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
        self.touched[id(replica)] = replica
        if isinstance(replica, Engine):
            replica.cache.clear()
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
            most = self.scenario.pipelines[pipeline].requests
            if most is not None and self.started[pipeline] >= most:
                return
            entity.row = [pipeline, self.started[pipeline], entity.number, now, *[NOT_YET] * (1 + 3 * self.longest)]
            self.rows.append(entity.row)
            self.started[pipeline] += 1
            self.enter_stage(entity, now)
            return
        self.touched[id(entity)] = entity
        for job in entity.end(now):
            entity.finished += 1
            if self.hand_on(entity, job, now):
                continue
            job.finish_ps = now
            if job.user is not None:
                self.leave_stage(job.user, job, now)

    def hand_on(self, entity: AnyReplica, job: Job, now: int) -> bool:
        """From a prefill replica to its link, from a link to a decode replica; False where a job ends here."""
        if isinstance(entity, Engine) and entity.server.link and job.answered < job.answer:
            at = [r for r in self.replicas if r.server.deployment == entity.server.deployment].index(entity)
            link = [r for r in self.replicas if r.server.deployment == entity.server.link][at]
            loaded = job.cached
            job.forget()
            job.loaded, job.entered, job.served = loaded, now, self.replicas.index(link)
            link.waiting.append(job)
            link.waiting = first_of_equals(link.waiting)
            self.touched[id(link)] = link
            return True
        if isinstance(entity, Batch) and entity.server.then_model:
            job.model = entity.server.then_model
            if not self.submit(job, now):
                self.give_up(job, FAILED, now)
            return True
        return False

    def enter_stage(self, user: User, now: int) -> None:
        pipeline = self.scenario.pipelines[user.pipeline]
        drawn = pipeline.lengths[user.stage] if pipeline.lengths else None
        prompt = answer = 1
        if drawn is not None:
            sample = user.row[1] % len(drawn.input_tokens)
            prompt, answer = int(drawn.input_tokens[sample]), int(drawn.output_tokens[sample])
        user.row[5 + 3 * user.stage] = now
        job = Job(pipeline.stages[user.stage], prompt, answer, user, priority=pipeline.priority)
        outcome = self.come(job, now)
        if outcome != NOT_YET:
            self.end_pass(user, outcome, now)

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
        hopeless = outcome in (FAILED, SHED) and again == now
        user.due = None if again >= self.stop_ps(pipeline) or hopeless else again

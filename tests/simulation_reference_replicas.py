"""The replicas of the plain reference (simulation_reference.py): LLM engines, processor sharing, batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rightslice.simulation import LlmServer, StageServer
from simulation_reference_cache import Copy, PrefixCache

NOT_YET, FAILED, LOST, TIMED_OUT, SHED = -1, -2, -3, -4, -5


def whole_ps(seconds: float) -> int:
    return round(seconds * 1e12)


@dataclass(eq=False)
class User:
    """One user of a pipeline; `row` is the record of the request under way."""

    number: int
    pipeline: int
    due: int | None
    stage: int = 0
    row: list[int] = field(default_factory=list)


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
    copies: list[Copy] = field(default_factory=list)
    hit_tokens: int = NOT_YET
    entered: int = 0
    client: int = 0
    served: int = -1
    loaded: int = 0
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
        self.cached = self.blocks = self.chunk = 0
        self.copies = []
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
    ordered: float = 1.0
    beside: float = 1.0
    seen: tuple[int, float] = (0, 0.0)

    @property
    def slowdown(self) -> float:
        return self.ordered * self.beside

    @property
    def could_start(self) -> bool:
        """Whether a waiting job might be taken now."""
        return self.due is None

    def change_speed(self, _now: int, ordered: float, beside: float) -> None:
        self.ordered, self.beside = ordered, beside

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
    """An LLM engine: vLLM V1, first come first served within a priority."""

    server: LlmServer = field(kw_only=True)
    cache: PrefixCache = field(kw_only=True)
    since: int = 0
    ratio: int = 700_000_000  # of what answers have left that is expected to come (SGLang), in billionths
    evicted: list[Job] = field(default_factory=list)  # at the start of the step under way

    def serves(self, job: Job) -> bool:
        fits = self.blocks_for(job.prompt + job.answer - 1) <= self.server.kv_blocks
        return fits and job.prompt + job.answer <= self.server.max_model_len

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.server.block_size_tokens)

    @property
    def free(self) -> int:
        left = self.server.kv_blocks - sum(job.blocks for job in self.running) + self.cache.saved
        assert left >= 0, "blocks are never negative"
        return left

    @property
    def used(self) -> int:
        return self.server.kv_blocks - self.free

    @property
    def budget(self) -> int:
        return self.server.max_num_batched_tokens - sum(job.chunk for job in self.running)

    def known_tokens(self, job: Job) -> int:
        shared, own = self.cache.find(job)
        return shared * self.cache.tokens + own * self.cache.block

    def evict(self) -> None:
        """Of the lowest priority, the one admitted last; SGLang: fewest tokens answered, longest prompt, last."""
        if self.server.admission == "estimate":
            victim = min(reversed([j for j in self.running if j.decodes]), key=lambda j: (j.answered, -j.prompt))
        else:
            lowest = min(job.priority for job in self.running)
            victim = [job for job in self.running if job.priority == lowest][-1]
        self.cache.leave(victim, victim.cached + victim.chunk, again=True)
        self.running.remove(victim)
        victim.forget()
        self.evicted.append(victim)
        self.waiting.appendleft(victim)
        self.waiting = first_of_equals(self.waiting)
        self.preemptions += 1

    def lacking(self, job: Job, chunk: int) -> int:
        return max(self.blocks_for(job.cached + chunk) - job.blocks, 0)

    def serve(self, job: Job, chunk: int) -> None:
        job.blocks += self.lacking(job, chunk)
        self.cache.trim(self.free)
        self.cache.compute(job, job.cached + chunk)
        job.chunk = chunk

    def serve_running(self, *, decode: bool = True) -> None:
        """Tokens of this step for the jobs that run, with `prefill_first` for one kind of them; none for those behind
        one that evicts itself."""
        for job in self.running:
            job.chunk = 0
        if self.server.admission == "estimate" and decode:
            while sum(self.lacking(job, 1) for job in self.running if job.decodes) > self.free:
                self.evict()
        for job in list(self.running):
            if job not in self.running or (self.server.prefill_first and job.decodes != decode):
                continue
            chunk = 1 if job.decodes else min(job.known - job.cached, self.budget)
            assert chunk >= 1, "there is budget for every running job"
            while self.lacking(job, chunk) > self.free:
                self.evict()
                if job not in self.running:
                    return
            self.serve(job, chunk)

    def admit(self) -> None:
        """Waiting jobs join from the front if there is room for their whole prompt, or answer."""
        expected = -(-sum(job.answer - job.answered for job in self.running) * self.ratio // 10**9)
        most = self.server.max_num_seqs
        if self.server.prefill_first:
            most = min(most, self.server.max_num_batched_tokens)
        by_chunk = self.server.admission == "prompt" and not self.server.prefill_first
        while self.waiting and self.budget and len(self.running) < most:
            job = self.waiting[0]
            shared, own = self.cache.find(job)
            known, in_use = self.known_tokens(job), self.cache.in_use(job, shared)
            known = known if self.cache.weight else job.loaded
            with_answer = self.blocks_for(job.prompt + job.answer - 1)
            whole = with_answer if self.server.admission == "answer" else self.blocks_for(job.known)
            if whole - in_use > self.free:
                break
            if not self.server.chunked_prefill and job.known - known > self.budget:
                break
            if self.server.admission == "estimate":
                if with_answer - in_use + self.blocks_for(expected) > self.free:
                    break
                expected += job.answer - job.answered - 1
            chunk = min(job.known - known, self.budget)
            self.running.append(self.waiting.popleft())
            self.cache.adopt(job, shared, own)
            job.deadline = None
            job.cached, job.loaded = known, 0
            job.blocks = self.blocks_for(known) if by_chunk else whole
            job.hit_tokens = known if job.hit_tokens == NOT_YET else job.hit_tokens
            self.serve(job, chunk)

    def start(self, now: int) -> None:
        if self.due is not None:
            return
        self.drop_expired(now)
        self.evicted.clear()
        if self.server.prefill_first:
            self.serve_running(decode=False)
            self.admit()
            if not any(job.chunk for job in self.running):
                self.serve_running()
        else:
            self.serve_running()
        if not self.evicted:
            if not self.server.prefill_first:
                self.admit()
        elif self.server.admission == "estimate":
            decoding = [job for job in self.running if job.decodes]
            answered, promised = sum(job.answered for job in decoding), sum(job.answer for job in decoding)
            self.ratio = min(10**9, (answered + 20 * len(decoding)) * 10**9 // (promised + 1))
        if not self.running:
            assert not self.waiting, "work conserving"
            self.ratio = 700_000_000
            return
        decoding = [job for job in self.running if job.decodes and job.chunk]
        prefilling = [job for job in self.running if not job.decodes]
        work = sum(job.chunk * job.cached + job.chunk * (job.chunk + 1) // 2 for job in prefilling)
        costs = self.server.costs.scaled(self.slowdown)
        duration = costs.step_time_ps(
            sum(job.chunk for job in prefilling), work, len(decoding), sum(job.cached + 1 for job in decoding)
        )
        self.due = now + max(duration, 1)
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
        if any(job.decodes and job.chunk for job in self.running) and not self.evicted:
            self.ratio = max(98_000_000, self.ratio - 602_000_000 // 600)
        for job in self.running:
            job.cached += job.chunk
            if job.chunk and job.cached == job.known:
                job.answered += 1
                job.decodes = True
                job.first_ps = now if job.first_ps == NOT_YET else job.first_ps
        done = [job for job in self.running if job.answered == job.answer or (self.server.link and job.decodes)]
        for job in done:
            self.cache.leave(job, job.cached, again=False)
            self.running.remove(job)
        return done

    def stop(self, now: int) -> None:
        """The step under way comes to nothing."""
        if self.due is not None:
            self.count(now)
        self.due = None


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

    @property
    def could_start(self) -> bool:
        return True

    def change_speed(self, now: int, ordered: float, beside: float) -> None:
        self.settle(now)
        self.ordered, self.beside = ordered, beside


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
        for job in done if not self.server.then_model else ():
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
        moved_ps = self.server.token_ps * self.running[0].loaded
        self.due = now + self.slowed(int(self.server.costs.latency_ps[len(self.running)])) + moved_ps

    def stop(self, now: int) -> None:
        self.count(now)
        self.due = None

    @property
    def could_start(self) -> bool:
        return not self.running


AnyReplica = Engine | Stage | Batch

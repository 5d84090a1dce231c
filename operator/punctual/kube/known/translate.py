"""Between what stands in the API server and the core's values, both ways.

In: models become jobs, pools and records, with absolute times. Out: records become statuses. A record that goes out and
comes in again is the same to the microsecond: it is all a new leader has.

What is wrong with a job is not an error here but part of it: it becomes a ``refusal``, which the Pool answers with.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from punctual import reasons
from punctual.control.cost_estimation import ClassSpeed
from punctual.control.miss_ratio import MissCount
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.conditions import TransitionTimes, conditions
from punctual.kube.api.fields import MAX_BYTES, MAX_UNITS
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import pod_name, results_name
from punctual.kube.known.pools import KnownPool
from punctual.notation.duration import format_duration, format_time
from punctual.profiles.learning import AskedSpeeds, Learned
from punctual.profiles.samples import ByHand
from punctual.profiles.samples import cost as profile_cost
from punctual.reservations.recurrence import DAY
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import (
    WITHOUT_PROMISE,
    Chunk,
    FurtherProcessors,
    InputVersion,
    Job,
    JobRecord,
    Offer,
    PilotSample,
    PodSize,
    Promise,
    Transfers,
)
from punctual.scheduling.model.node_rules import ANY_NODE, Fit
from punctual.scheduling.model.pool_spec import NodeProcessors, PoolRecord, PoolSpec, Tenancy
from punctual.scheduling.model.ranges import Counts, RangeCount, Ranges
from punctual.scheduling.model.resources import Resources
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

Json = dict[str, Any]


MOST_NODES = 1000  # as the schema of PoolStatus.nodes has it
MOST_CLASSES = 64  # as those of PoolStatus.nodeClasses and of their namespaces have it

_RULES: Final[dict[Literal["Optimal", "Equal"], Literal["OPR", "EPR"]]] = {"Optimal": "OPR", "Equal": "EPR"}
_ASSIGNMENTS: Final[dict[Literal["Fewest", "All"], Literal["MN", "AN"]]] = {"Fewest": "MN", "All": "AN"}
OPEN: Final = Verdict("Unknown", "", "")
_JOB_CONDITIONS = {
    "Admitted": "admitted",
    "OnTrack": "on_track",
    "Completed": "completed_condition",
    "Failed": "failed_condition",
    "SpecApplied": "spec_applied",
}


# in


def to_job(
    job: api.DivisibleJob,
    *,
    profile: api.ProfileSpec | None = None,
    learned: Learned = lambda _by_hand: None,
    in_force: Cost | None = None,
    refusal: tuple[str, str] | None = None,
    reservation: str | None = None,
    fit: Fit | None = None,
    pod: PodSize | None = None,
) -> Job:
    """Return the job as the core knows it; ``profile`` is the spec of the one it names, None where there is none.

    ``learned`` tells what is known beside what the profile sets by hand; ``in_force``: the cost that a job was promised
    with, which no profile changes; ``reservation``: the uid of the one it names; ``fit``: the nodes that its pods may
    run on, None: all; ``pod``: what pods take that a Job's controller makes.
    """
    meta, spec = job.metadata, job.spec
    cost, response = _cost(spec.cost), None
    if spec.profile is not None:
        by_hand = to_by_hand(profile) if profile is not None else None
        known = learned(by_hand) if by_hand is not None else None
        response = known.response if known is not None else None
        if in_force is not None:
            cost = in_force
        elif by_hand is not None:
            cost = profile_cost(by_hand, known, fetches=spec.input is not None)
        else:
            refusal = refusal or (
                reasons.PROFILE_NOT_FOUND,
                f"there is no Profile {spec.profile} in namespace {meta.namespace}: create it, or set spec.cost",
            )
    # the schema asks for exactly one of the two, or for none
    deadline = spec.deadline_time if spec.deadline is None else meta.creation_timestamp + spec.deadline
    if spec.class_ == "Guest":
        deadline = math.inf
    return Job(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        generation=meta.generation,
        arrival=meta.creation_timestamp,
        units=spec.units,
        deadline=cast(float, deadline),
        cost=cost,
        response=response,
        min_processors=spec.processors.min,
        max_processors=_least(spec.processors.max, fit.most if fit else None),
        restart=spec.restart,
        chunk_retries=spec.chunk_retries,
        stall_timeout=spec.stall_timeout,
        image_timeout=spec.image_pull_timeout,
        on_miss=spec.on_miss,
        on_refusal=spec.on_refusal,
        retention=spec.pod_retention,
        dry_run=spec.dry_run,
        suspend=spec.suspend,
        reservation=reservation,
        reduce_duration=spec.reduce.duration if spec.reduce else None,
        pod_limit=spec.template.spec.active_deadline_seconds,
        reduce_limit=spec.reduce.template.spec.active_deadline_seconds if spec.reduce else None,
        fetches=spec.input is not None,
        unit_pods=spec.job_ref is not None,
        pod=pod,
        ttl=None if spec.ttl_seconds_after_finished is None else float(spec.ttl_seconds_after_finished),
        rules=fit.rules if fit else ANY_NODE,
        refusal=refusal,
    )


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def to_unreadable_job(meta: api.Metadata, units: int, error: UserError) -> Job:
    """Return a job with an unreadable spec (perhaps its units can be read): it can only be refused."""
    created = meta.creation_timestamp
    return Job(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        generation=meta.generation,
        arrival=created,
        units=min(max(1, units), MAX_UNITS),  # what its status may say
        deadline=created,
        cost=None,
        refusal=(error.reason, error.message),
    )


def _cost(asked: api.JobCost | None) -> Cost | None:
    return None if asked is None else Cost(asked.per_unit, asked.transfer_per_unit, asked.transfer_setup, asked.startup)


def cost_in_force(record: JobRecord | None) -> Cost | None:
    """Return the cost with which a job was promised, or goes on: no profile changes it, whatever that says by now."""
    if record is None or record.admitted is None or (record.admitted.status == "False" and not record.goes_on):
        return None
    return record.cost


def to_by_hand(spec: api.ProfileSpec) -> ByHand:
    """Return what a profile sets by hand."""
    return ByHand(spec.per_unit, spec.transfer_per_unit, spec.transfer_setup, spec.startup)


def to_speeds(asked: api.NodeSpeeds) -> AskedSpeeds:
    """Return what a pool's spec says of its nodes' speeds."""
    return AskedSpeeds(asked.limit, {c.name: c.unit_time for c in asked.classes or ()})


def to_pool_spec(pool: api.Pool | KnownPool) -> PoolSpec:
    """Return the pool as the core knows it."""
    return _pool_spec(pool.metadata.name, pool.spec, pool.metadata.generation)


def _pool_spec(name: str, spec: api.PoolSpec, generation: int) -> PoolSpec:
    return PoolSpec(
        name=name,
        generation=generation,
        cpu=spec.processor.cpu,
        memory=spec.processor.memory,
        others=Resources.of(spec.processor.resources or {}).others,
        period=spec.processor.period,
        feedback=spec.progress_control == "Feedback",
        hold=spec.hold,
        headroom=spec.headroom,
        margin=spec.margin,
        admission=spec.admission,
        pods_per_processor=(spec.utilization or api.Utilization()).pods_per_processor,
        discipline=Discipline(
            order=spec.order,
            partition=_RULES[spec.partition],
            assign=_ASSIGNMENTS[spec.assign],
            network=spec.network,
        ),
        tenancy=Tenancy(
            max_share=spec.max_share,
            own=tuple((share.namespace, share.max_share) for share in spec.namespace_shares or ()),
            horizon=spec.promise_horizon * DAY,
        ),
        miss_set_point=spec.miss_ratio.target if spec.miss_ratio else None,
        sample_period=(spec.miss_ratio or api.MissRatioSpec()).period,
        selectors=spec.model_dump_json(include=set(api.PoolSelectors.model_fields), by_alias=True, exclude_none=True),
    )


def to_selectors(spec: PoolSpec) -> api.PoolSelectors:
    """Return which nodes, jobs and reservations a pool takes: the core carries them and does not read them."""
    return api.PoolSelectors.model_validate_json(spec.selectors)


def to_record(status: api.DivisibleJobStatus) -> JobRecord:
    """Return what a job's status says."""
    said = {c.type: Verdict(c.status, c.reason, c.message) for c in status.conditions}
    fetched = status.input
    # as `ended` in kube.known.jobs tells them apart
    refused = "Completed" not in said and "Failed" not in said and said.get("Admitted", OPEN).status == "False"
    answer = said.get("Admitted", OPEN)
    goes_on = refused and status.state in {"Waiting", "Running"} and answer.reason in WITHOUT_PROMISE
    promise, offer, cost, units = status.promise, status.offer, status.cost, status.units or api.UnitCounts()
    return JobRecord(
        epoch=status.epoch or 0,
        observed_generation=status.observed_generation or 0,
        admitted=said.get("Admitted"),
        on_track=said.get("OnTrack"),
        completed_condition=said.get("Completed"),
        failed_condition=said.get("Failed"),
        spec_applied=said.get("SpecApplied"),
        promise=Promise(
            promise.deadline,
            promise.finish,
            promise.margin,
            promise.processors,
            promise.start,
            bool(promise.given_up),
        )
        if promise
        else None,
        offer=_to_offer(offer) if offer else None,
        cost=Cost(cost.per_unit, cost.transfer_per_unit, cost.transfer_setup, cost.startup) if cost else None,
        completed=Ranges.of(*((r.begin, r.end) for r in status.completed)),
        failed=Counts(tuple(RangeCount(c.begin, c.end, c.count) for c in status.failed)),
        tried=Counts(tuple(RangeCount(c.begin, c.end, c.count) for c in status.tried)),
        chunks=tuple(_to_chunk(c) for c in status.chunks),
        pilots=tuple(PilotSample(p.units, p.seconds) for p in status.pilots),
        transfers=Transfers(fetched.transfers, fetched.units, fetched.bytes, fetched.opening, fetched.sending)
        if fetched and fetched.transfers
        else None,
        input=InputVersion(fetched.size, fetched.validator or "") if fetched and fetched.size is not None else None,
        results=status.results is not None,
        started=status.start_time,
        finished=None if refused else status.finish_time,
        refused=status.finish_time if refused else None,
        goes_on=goes_on,
        done=units.done,
        running=units.running,
        eta=status.eta,
    )


def _to_chunk(chunk: api.ChunkRecord) -> Chunk:
    return Chunk(
        begin=chunk.begin,
        end=chunk.end,
        origin=chunk.end if chunk.origin is None else chunk.origin,
        node=chunk.node,
        attempt=chunk.attempt,
        kind=chunk.kind,
        created=chunk.created_time,
        promised_end=chunk.promised_end,
        offered=chunk.offered_end,
        leftover=bool(chunk.leftover),
        late=bool(chunk.late),
        done=chunk.done or 0,
        sent=chunk.input_time,
        turn=chunk.turn_time,
        received=chunk.received or 0,
    )


def to_pool_record(name: str, status: api.PoolStatus) -> PoolRecord:
    """Return what a pool's status says."""
    said = {c.type: Verdict(c.status, c.reason, c.message) for c in status.conditions}
    return PoolRecord(
        epoch=status.epoch or 0,
        observed_generation=status.observed_generation or 0,
        ready=said.get("Ready"),
        spec_applied=said.get("SpecApplied"),
        applied=_pool_spec(name, status.applied, status.applied_generation or 0) if status.applied else None,
        processors=status.processors or 0,
        free=status.free or 0,
        scarcest=status.scarcest or "",
        queue=status.queue or 0,
        nodes=tuple(
            NodeProcessors(
                name=n.name,
                processors=n.processors,
                pods=n.pods,
                speed=n.speed or 1.0,
                reason=n.reason,
                held_since=n.held_time,
            )
            for n in status.nodes
        ),
        miss=_to_miss_count(status.miss_ratio) if status.miss_ratio else None,
        startups=tuple(status.startup.samples) if status.startup else (),
    )


def _to_miss_count(count: api.MissCountStatus) -> MissCount:
    return MissCount(bound=count.bound, ratio=count.ratio, due=count.due, missed=count.missed, until=count.until or 0.0)


# out


def job_status(record: JobRecord, job: Job, *, owner: Owner, transition_times: TransitionTimes, now: float) -> Json:
    """Return a job's status. ``transition_times``: those of its conditions so far."""
    deadline = record.promise.deadline if record.promise else job.deadline
    said = explanation(record)
    status: Json = {
        "state": job_state(record),
        **({"reason": said.reason} if said and said.reason else {}),
        "conditions": conditions(
            {kind: getattr(record, field) for kind, field in _JOB_CONDITIONS.items()},
            transition_times,
            now=now,
            generation=record.observed_generation,
        ),
        "epoch": record.epoch,
        "observedGeneration": record.observed_generation,
        "units": {"done": record.done, "running": record.running, "total": job.units},
        "progress": f"{100 * record.done // job.units}%",  # 100% only when all is done
        "applied": _applied(job, deadline),
    }
    if record.promise:
        status["promise"] = _promise(record.promise)
    if record.offer:
        status["offer"] = _offer(record.offer)
    if cost := record.cost:
        status["cost"] = {
            "perUnit": cost.chi,
            "transferPerUnit": cost.tau,
            "transferSetup": cost.theta_cm,
            "startup": cost.theta_cp,
        }
    if record.transfers is not None or record.input is not None:
        fetched = record.transfers or Transfers()
        status["input"] = {
            "transfers": fetched.times,
            "units": fetched.units,
            "bytes": min(fetched.size, MAX_BYTES),
            "opening": round(fetched.opening, 3),
            "sending": round(fetched.sending, 3),
            "transferPerUnit": fetched.tau,
            "transferSetup": round(fetched.theta_cm, 3),
        }
        if record.input is not None:
            status["input"] |= {"size": record.input.size, "validator": record.input.validator}
    if record.eta is not None:
        # columns: whole seconds, rounded to the safe side, but not beyond a deadline that is kept
        whole = math.ceil(record.eta)
        status["eta"] = format_time(whole if record.eta > deadline else min(whole, deadline))
        status["slack"] = format_duration(math.floor(deadline - record.eta))
    if record.results:
        status["results"] = results_name(owner.name)
    over = record.over if record.ended or job_state(record) == "Refused" else None
    for field, time in (("startTime", record.started), ("finishTime", over)):
        if time is not None:
            status[field] = format_time(time)
    lists: dict[str, list[Json]] = {
        "completed": [{"begin": r.begin, "end": r.end} for r in record.completed],
        "failed": _counts(record.failed),
        "tried": _counts(record.tried),
        "chunks": [_chunk(c, owner) for c in record.chunks],
        "pilots": [p._asdict() for p in record.pilots],
    }
    return status | {field: some for field, some in lists.items() if some}


def _promise(promise: Promise) -> Json:
    made: Json = {
        "deadline": format_time(promise.deadline),
        "finish": format_time(promise.finish),
        "margin": format_duration(promise.margin),
        "processors": promise.processors,
        "start": format_time(promise.start),
    }
    return made | ({"givenUp": True} if promise.given_up else {})


def _applied(job: Job, deadline: float) -> Json:
    found = {} if math.isinf(deadline) else {"deadlineTime": format_time(deadline)}
    return {**found, "suspend": job.suspend}


def job_state(record: JobRecord) -> api.State:  # noqa: PLR0911  one line per state reads best
    """Return the state of a job in one word, as :attr:`DivisibleJobStatus.state` explains it."""
    if record.failed_condition is not None:
        return "Failed"
    if record.completed_condition is not None:
        return "Missed" if record.completed_condition.reason == reasons.DEADLINE_MISSED else "Completed"
    if record.admitted is None or (undecided(record) and record.refused is None):
        return "Waiting"
    match record.admitted:
        case Verdict(status="Unknown"):
            return "Measuring"
        case Verdict(reason=reasons.SUSPENDED):
            return "Suspended"
        case Verdict(status="False") if not record.goes_on:
            return "Refused"
    if record.on_track is not None and record.on_track.status == "False":
        return "Late"
    return "Waiting" if record.started is None else "Running"


def explanation(record: JobRecord) -> Verdict | None:
    """Return the condition that explains the state of a job; None: it has no answer yet."""
    match job_state(record):
        case "Failed":
            return record.failed_condition
        case "Completed" | "Missed":
            return record.completed_condition
        case "Late":
            return record.on_track
    return record.admitted


def _counts(counts: Counts) -> list[Json]:
    return [{"begin": c.begin, "end": c.end, "count": c.times} for c in counts]


def _to_offer(offer: api.OfferStatus) -> Offer:
    more = offer.processors
    further = FurtherProcessors(more.more, more.begin, more.until) if more else None
    return Offer(offer.earliest_deadline, offer.valid_until_time, offer.largest_load, further)


def _offer(offer: Offer) -> Json:
    made: Json = {"validUntilTime": format_time(offer.valid_until), "largestLoad": offer.largest_load}
    if offer.earliest_deadline is not None and offer.earliest_time is not None:
        made["earliestDeadline"] = format_duration(offer.earliest_deadline)
        made["earliestDeadlineTime"] = format_time(offer.earliest_time)
    if offer.processors is not None:
        more, start, until = offer.processors
        made["processors"] = {"more": more, "from": format_time(start), "until": format_time(until)}
    return made


def _chunk(chunk: Chunk, owner: Owner) -> Json:
    made: Json = {
        "begin": chunk.begin,
        "end": chunk.end,
        "node": chunk.node,
        "attempt": chunk.attempt,
        "kind": chunk.kind,
        **({} if owner.batch else {"pod": pod_name(owner, chunk)}),
        "createdTime": format_time(chunk.created),
        "promisedEnd": format_time(chunk.promised_end),
    }
    if chunk.origin != chunk.end:
        made["origin"] = chunk.origin
    if chunk.offered is not None:
        made["offeredEnd"] = chunk.offered
    if chunk.leftover:
        made["leftover"] = True
    if chunk.late:
        made["late"] = True
    if chunk.done:
        made["done"] = chunk.done
    if chunk.sent is not None:
        made["inputTime"] = format_time(chunk.sent)
    if chunk.turn is not None:
        made["turnTime"] = format_time(chunk.turn)
    if chunk.received:
        made["received"] = min(chunk.received, MAX_BYTES)  # it is what a file in the pod says
    return made


def pool_status(
    record: PoolRecord,
    *,
    transition_times: TransitionTimes,
    now: float,
    classes: Mapping[str, ClassSpeed] | None = None,
) -> Json:
    """Return a pool's status. ``classes``: how the classes of its nodes compare."""
    verdicts = {"Ready": record.ready, "SpecApplied": record.spec_applied, "NodesOverlap": _overlap(record.nodes)}
    status: Json = {
        "conditions": conditions(verdicts, transition_times, now=now, generation=record.observed_generation),
        "epoch": record.epoch,
        "observedGeneration": record.observed_generation,
        "processors": record.processors,
        "free": record.free,
        **({"scarcest": record.scarcest} if record.scarcest else {}),
        "queue": record.queue,
        "nodes": [_line(n) for n in record.nodes[:MOST_NODES]],
        "startup": _startup(record.startups),
    }
    if classes:
        status["nodeClasses"] = [_class(name, found) for name, found in sorted(classes.items())[:MOST_CLASSES]]
    if record.miss:
        status["missRatio"] = _miss_count(record.miss)
    if applied := record.applied:
        status["appliedGeneration"] = applied.generation
        status["applied"] = api.PoolSpec(
            **dict(to_selectors(applied)),
            processor=api.Processor(
                cpu=applied.cpu, memory=applied.memory, resources=dict(applied.others) or None, period=applied.period
            ),
            progress_control="Feedback" if applied.feedback else "None",
            hold=applied.hold,
            headroom=applied.headroom,
            margin=applied.margin,
            admission=applied.admission,
            utilization=api.Utilization(pods_per_processor=applied.pods_per_processor) if applied.fluid else None,
            order=applied.discipline.order,
            partition=next(name for name, rule in _RULES.items() if rule == applied.discipline.partition),
            assign=next(name for name, way in _ASSIGNMENTS.items() if way == applied.discipline.assign),
            miss_ratio=None
            if applied.miss_set_point is None
            else api.MissRatioSpec(target=applied.miss_set_point, period=applied.sample_period),
            network=applied.discipline.network,
            **_tenancy(applied.tenancy),
        ).manifest()
    return status


def _tenancy(tenancy: Tenancy) -> Json:
    own = [api.NamespaceShare(namespace=name, max_share=share) for name, share in tenancy.own]
    horizon = {} if math.isinf(tenancy.horizon) else {"promise_horizon": round(tenancy.horizon / DAY)}
    return {"max_share": tenancy.max_share, "namespace_shares": own or None, **horizon}


def _miss_count(count: MissCount) -> Json:
    made: Json = {"bound": count.bound, "due": count.due, "missed": count.missed}
    if count.ratio is not None:
        made["ratio"] = count.ratio
    if count.until:
        made["until"] = format_time(count.until)
    return made


def _line(node: NodeProcessors) -> Json:
    line: Json = {"name": node.name, "processors": node.processors}
    if node.pods is not None:
        line["pods"] = node.pods
    if node.speed != 1.0:
        line["speed"] = node.speed
    if node.reason is not None:
        line["reason"] = node.reason
    if node.held_since is not None:
        line["heldTime"] = format_time(node.held_since)
    return line


def _class(name: str, found: ClassSpeed) -> Json:
    shown = api.MeasuredClass(
        name=name,
        unit_time=found.slow,
        measured=None if found.measured is None else round(found.measured, 4),
        namespaces=list(found.tenants[:MOST_CLASSES]) or None,
    )
    return shown.manifest()


def _startup(samples: tuple[float, ...]) -> Json:
    if not samples:
        return {}
    ordered = sorted(samples)
    rank = len(ordered) - 1
    return {"p50": ordered[rank // 2], "p95": ordered[-(-95 * rank // 100)], "samples": list(samples)}


def _overlap(nodes: tuple[NodeProcessors, ...]) -> Verdict:
    shared = [n.name for n in nodes if n.reason == reasons.NODES_OVERLAP]
    if not shared:
        return Verdict("False", reasons.NO_OVERLAP, "no node that it selects belongs to an older pool")
    some = ", ".join(shared[:3]) + (f" and {len(shared) - 3} more" if len(shared) > 3 else "")
    return Verdict("True", reasons.NODES_OVERLAP, f"belong to an older pool and are left out: {some}")


def pool_missing(record: JobRecord | None, job: Job, pool: str, *, epoch: int, now: float) -> JobRecord:
    """Return the record of a job without a pool; what it has done stands.

    It waits until the pool appears, at most until its deadline: then it is refused.
    """
    before = record or JobRecord()
    text, refused = f"there is no Pool {pool}: create it, and this job will be evaluated", None
    if job.deadline <= now:
        text = f"there was no Pool {pool} by the deadline: create it or name another one, and set a later deadline"
        refused = now if before.refused is None else before.refused
    return before._replace(
        epoch=epoch,
        observed_generation=job.generation,
        promise=None,
        on_track=None,
        eta=None,
        refused=refused,
        goes_on=False,
        admitted=Verdict("False", reasons.POOL_NOT_FOUND, text),
    )


def not_allowed(pool: str, namespace: str) -> tuple[str, str]:
    """Return the refusal of an object from a namespace that its pool does not serve."""
    return reasons.NOT_ALLOWED, (
        f"Pool {pool} takes nothing from namespace {namespace}: its labels do not match the pool's namespaceSelector"
    )


def delayed(record: JobRecord | None, job: Job, text: str, *, epoch: int) -> JobRecord:
    """Return the record of a job that has no answer yet, which tells why; what it has done stands."""
    return (record or JobRecord())._replace(
        epoch=epoch,
        observed_generation=job.generation,
        refused=None,
        admitted=Verdict("Unknown", reasons.ANSWER_DELAYED, text),
    )


def undecided(record: JobRecord | None) -> bool:
    """Whether no answer has been given but that the pool is missing, or that the answer is delayed."""
    return record is None or record.admitted is None or record.admitted.reason in _NO_ANSWER


_NO_ANSWER = {reasons.POOL_NOT_FOUND, reasons.ANSWER_DELAYED}


def without_decision(record: JobRecord | None) -> JobRecord | None:
    """Return what a job brings along that is asked again: its ledger, if it has one, and when it was refused."""
    if record is None:
        return None
    if record.completed or record.chunks or record.tried.parts or record.ended:
        return record._replace(admitted=None)
    if record.refused is None:
        return None
    return JobRecord(observed_generation=record.observed_generation, refused=record.refused)

"""``why``: each state is explained in the operator's own numbers, from the status and a view of the pool."""

import re
from dataclasses import replace

import pytest
from state import NOW, pool_body, spec_of, state
from world import Worker, World, job

from punctual.kube.snapshot import Snapshot
from punctual.notation.duration import format_time
from punctual.view.jobs import job_of, pod_of
from punctual.view.subject import SHOWN, STRANGER
from punctual.view.why import why, why_chunk


def asked(uid, *, within, now=NOW, **more):
    return job(uid, deadline=now + within, arrival=now, **more)


class Cluster:
    """A world, and what is read of it: the job's status, the pool rebuilt from statuses."""

    def __init__(self, *, cpus=(2.0, 1.0), **spec):
        self.body = pool_body(**spec)
        self.world = World(spec=spec_of(self.body), now=NOW)
        for i, cpu in enumerate(cpus):
            self.world.node(f"n{i}", cpu)
        self.world.tick()

    def after(self, seconds, *jobs):
        for wanted in jobs:
            self.world.apply(wanted)
        self.world.run(NOW + seconds)
        return self

    def read(self, uid):
        found = state(self.world, self.body)
        body = next(item for item in found["items"] if item["metadata"]["uid"] == uid)
        return job_of(body), Snapshot.of([found]).pool("main", now=self.world.now).view()

    def names(self):
        jobs = self.world.jobs.values()
        return {one.uid: f"{one.namespace}/{one.name}" for one in jobs if one.namespace == "default"}

    def why(self, uid, **more):
        found, pool = self.read(uid)
        return why(found, pool, self.world.now, self.names(), **more)

    def why_alone(self, uid):
        return why(self.read(uid)[0], None, self.world.now, {})

    def why_chunk(self, uid, number=0, pod=None):
        found, pool = self.read(uid)
        return why_chunk(found, found.chunks[number], pool, self.world.now, self.names(), pod)


def one(sentences, pattern):
    found = [text for text in sentences if re.fullmatch(pattern, text)]
    assert len(found) == 1, (pattern, sentences)
    return found[0]


A = asked("a", units=200, within=100)


def test_a_refusal_has_its_arithmetic_what_stands_before_it_and_what_would_be_promised():
    theirs = asked("b", units=60, within=200, namespace="other")
    found = Cluster().after(10, A, theirs, asked("no", units=300, within=90)).why("no")
    one(found, r"Pool main refused it 0\.0s ago \(InfeasibleCapacity\): 300 units due in .*")
    one(found, r"The pool has 3 processors now, none of them free, the first at 08:01:08Z \(in 58s\)\.")
    one(found, r"default/a runs on 3 processors, by plan until 08:01:09Z \(in 59s\)\.")
    one(found, r"A job of another namespace is promised 1 processor from 08:01:0\dZ \(in 5\ds\) to 08:02:1\dZ .*\.")
    one(found, r"Would be promised: spec\.deadlineTime \S+Z \(a new job: spec\.deadline \S+\).* This holds until .*\.")
    lacking = (
        r"all of it by the requested deadline with \d more processors from 08:00:00Z \(10s ago\) until \S+Z \(in \S+\)"
    )
    one(found, rf"Would be promised: .*, or {lacking}\. This holds until .*\.")
    assert "other/" not in " ".join(found), "no name of another tenant"


def test_a_refusal_without_processor_time_says_how_much_work_it_is():
    found = Cluster().after(10, A, asked("no", units=60, within=40, max_processors=1)).why("no")
    one(found, r"60 units of 1s take 1m of one processor, and each chunk takes 2\.0s more to start\.")


def test_headroom_is_told_where_a_forecast_or_a_refusal_surprises():
    cluster = Cluster(headroom="12.5%").after(10, A, asked("no", units=60, within=40, max_processors=1))
    said = r"Plans leave 12\.5% of each processor free, so that a slow chunk can catch up \(headroom\)\."
    one(cluster.why("a"), said)
    one(cluster.why("no"), said)
    assert "headroom" not in " ".join(Cluster().after(10, A).why("a"))


def test_a_refusal_of_a_pool_without_processors_awaits_no_offer():
    found = Cluster(cpus=()).after(10, asked("no", units=60, within=40)).why("no")
    one(found, r".*no deadline can be promised now: the pool has no processor, because no node has the labels .*")
    one(found, r"No other deadline and no smaller load would be promised\.")


def test_an_offer_that_has_ended_is_told_as_such():
    found = Cluster().after(100, A, asked("no", units=300, within=90)).why("no")
    one(found, r"Would have been promised until 08:01:00Z \(40s ago\): .* An edit asks again\.")


def test_a_promised_job_says_what_the_processors_it_waits_for_do_and_until_when():
    found = Cluster().after(10, A, asked("b", units=60, within=200)).why("b")
    one(
        found,
        r"Pool main promised 08:03:20Z \(in 3m10s\)\. The forecast is 08:02:1\dZ .*, 1m\d+s before the deadline; .*",
    )
    one(found, r"Its plan takes 1 processor, the fewest that meet the deadline, from those that are free earliest\.")
    start = r"Units 0-60 start at 08:01:0\dZ \(in 5\ds\) on a processor of node n\d"
    one(found, start + r", which runs units \d+-\d+ of default/a until then\.")


def test_it_waits_for_a_job_of_another_namespace_without_its_name():
    theirs = replace(A, namespace="other", name="secret")
    found = Cluster().after(10, theirs, asked("b", units=60, within=200)).why("b")
    one(found, rf"Units 0-60 start at .* of node n\d, which runs {STRANGER} until then\.")
    assert "secret" not in " ".join(found)


def test_a_reduce_step_waits_for_the_last_chunk():
    found = Cluster().after(10, asked("a", units=100, within=200, reduce_duration=5.0)).why("a")
    one(
        found,
        r"The reduce step starts at .* on a processor of node n\d, which runs units 0-100 of this job until then\.",
    )


def test_a_reserved_window_is_in_the_way():
    cluster = Cluster(cpus=(1.0,))
    cluster.world.reserve("r", NOW + 20, NOW + 80, 1)
    found = cluster.after(10, asked("b", units=60, within=200))
    live = why(found.read("b")[0], found.world.pool.view(), found.world.now, {})
    one(live, r"Units \d+-60 start at 08:01:20Z .* of node n0, which a reservation holds until then\.")


def test_work_in_a_queue_starts_as_processors_become_free():
    cluster = Cluster(admission="Fast").after(10, A, asked("b", units=60, within=200))
    found = why(cluster.read("b")[0], cluster.world.pool.view(), cluster.world.now, {})
    one(found, r"60 units wait in the pool's queue, where work that is due first starts first: .*")


def test_a_running_job_says_where_it_runs():
    cluster = Cluster().after(10, A)
    one(cluster.why("a"), r"3 chunks run on 2 nodes: n0, n1; \d+ of 200 units are done\.")
    chunk = cluster.why_chunk("a")
    one(
        chunk, r"It is units 0-67 of default/a, on node n0 since 08:00:00Z \(9\.\ds ago\), by plan until 08:01:09Z .*\."
    )
    one(chunk, r"A processor of n0 was free when the job was promised, 0\.\ds after its creation\.")
    one(chunk, r"It has reported \d of 67 units\.")


def test_a_chunk_that_began_later_waited_for_its_processor():
    chunk = Cluster().after(90, A, asked("b", units=60, within=200)).why_chunk("b")
    one(chunk, r"It began 1m\d+s after the job's creation: by plan, this processor of n\d was free then\.")


def slow(cluster, pace=1.6):
    cluster.world.workers = lambda _job, _chunk: Worker(pace=pace)
    return cluster


def test_a_chunk_behind_its_plan_shows_its_pace_and_its_end():
    found = slow(Cluster()).after(30, A).why("a")
    told = r"Units 0-67 on node n0, planned to end at 08:01:09Z .*, have reported 17 of 67: "
    pace = r"a unit takes 1\.[45] times its cost of 1s\. At this pace they end at 08:01:\d+Z .*, \d+s late\."
    one(found, told + pace)


def test_a_late_job_says_why_and_how_far_its_chunks_are():
    cluster = slow(Cluster()).after(72, A)
    found = cluster.why("a")
    one(found, r"Its deadline cannot be kept \(Overrun\): its units take longer than declared; .*\.")
    one(found, r"The pool has 3 processors now, 0 of them free\.")
    live = why(cluster.read("a")[0], cluster.world.pool.view(), cluster.world.now, {})
    one(live, r"Its units take 1\.[5-7] times the cost that was promised\.")


def test_a_refused_job_that_runs_says_both():
    cluster = Cluster().after(3, asked("a", units=300, within=20, on_refusal="Continue"))
    found = cluster.why("a")
    refused = r"Pool main refused it .* \(InfeasibleCapacity\): .*"
    one(found, rf"{refused}; it runs on leftover capacity without a promise; .*")
    one(found, r"Would be promised: spec\.deadlineTime .*")
    ends = r"when a promise needs the processor, the chunk is ended\."
    one(found, rf"3 chunks run on leftover capacity: {ends} Its finished units count\.")
    one(cluster.why_chunk("a"), rf"A processor of n\d was idle\. No promise holds it: {ends}")


def test_lost_nodes_are_named():
    cluster = Cluster().after(10, A)
    cluster.world.node("n0", 2.0, ready=False)
    found = cluster.after(20).why("a")
    one(found, r"Its deadline cannot be kept \(CapacityLost\): processors were lost; .*")
    one(found, r"Node n0 has no processors now: NotReady\.")
    one(found, r"The pool has 1 processor now, \d of them free\.")


def test_work_that_is_done_again_is_told():
    cluster = Cluster(cpus=(2.0, 2.0)).after(10, asked("a", units=100, within=150))
    pod = next(iter(cluster.world.pods.values()))
    cluster.world.delete_pod(pod.name)
    found = cluster.after(20)
    one(found.why("a"), r"Other chunks had units \S+ before: they ended, were lost or were cut without these units\.")
    one(found.why_chunk("a"), r"This is attempt 2: an earlier chunk ended, was lost or was cut without these units, .*")


def test_work_that_failed_by_its_own_fault_is_counted():
    cluster = Cluster()
    cluster.world.workers = lambda _job, chunk: Worker(fails_after=5.0 if chunk.attempt == 1 else None)
    one(cluster.after(15, A).why("a"), r"A chunk of it has failed once by its own fault: kubectl describe dj a .*")


def pending(found, waiting=None):
    chunk = found.chunks[0]
    state = {"waiting": {"reason": waiting[0], "message": waiting[1]}} if waiting else {}
    labels = {"punctual.dev/job-uid": found.uid}
    notes = {"punctual.dev/begin": str(chunk.begin), "punctual.dev/end": str(chunk.end)}
    meta = {
        "name": chunk.pod,
        "uid": "p",
        "labels": labels,
        "annotations": notes,
        "creationTimestamp": format_time(NOW),
    }
    return pod_of({
        "metadata": meta, "spec": {"nodeName": chunk.node},
        "status": {"phase": "Pending", "containerStatuses": [{"state": state}]},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("body", "waiting"),
    [
        ({"spec": {"schedulerName": "vulcano"}}, "no scheduler named vulcano has looked at it"),
        ({"spec": {"schedulerName": "default-scheduler"}}, ""),
        (
            {"status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: …"}
            ]}},
            "Unschedulable: 0/3 nodes: …",
        ),
    ],
)  # fmt: skip
def test_a_pod_without_a_node_tells_the_schedulers_words(body, waiting):
    meta = {
        "name": "p",
        "uid": "p",
        "labels": {"punctual.dev/job-uid": "j"},
        "annotations": {"punctual.dev/begin": "0"},
        "creationTimestamp": format_time(NOW),
    }
    assert pod_of({"metadata": meta, **body}).waiting == waiting


def test_the_works_container_is_shown_whatever_was_put_in_front_of_it():
    ends = [{"name": name, "state": {"terminated": {"message": name}}} for name in ("proxy", "main")]
    meta = {
        "name": "p",
        "uid": "p",
        "labels": {"punctual.dev/job-uid": "j"},
        "annotations": {"punctual.dev/begin": "0", "punctual.dev/work": "main"},
        "creationTimestamp": format_time(NOW),
    }
    assert pod_of({"metadata": meta, "status": {"containerStatuses": ends}}).message == "main"


def test_a_pod_that_waits_for_its_image_says_so():
    cluster = Cluster().after(10, A)
    pod = pending(cluster.read("a")[0], ("ImagePullBackOff", 'Back-off pulling image "nowhere/x"'))
    pulled = r"ImagePullBackOff: Back-off .* The image cannot be pulled; .*"
    said = r"Pod \S+ \(units 0-67, node n0\) has not started after 9\.\ds: " + pulled
    one(cluster.why("a", pods={pod.name: pod}), said)
    one(cluster.why_chunk("a", pod=pod), said)
    plain = pending(cluster.read("a")[0])
    one(
        cluster.why("a", pods={plain.name: plain}),
        r"Pod .* has not started after .*: its containers are being created\.",
    )


def test_a_job_that_is_measured_suspended_or_done_says_so():
    cluster = Cluster().after(
        5, asked("m", units=500, within=2000, chi=None), asked("s", units=50, within=200, suspend=True)
    )
    one(cluster.why("m"), r"Its cost is being measured \(Measuring\): .*")
    one(cluster.why("m"), r"Pilot chunks: 1 ended, 1 under way\.")
    one(cluster.why("s"), r"It is suspended \(Suspended\): .*")
    one(Cluster().after(80, A).why("a"), r"It is done, in time \(Completed\): 200 units done in 1m\d+s\.")
    late = slow(Cluster()).after(130, A).why("a")
    one(late, r"It is done, but late \(DeadlineMissed\): done in .*, .* late\.")
    one(late, r"Its promise could not be kept \(Overrun\): .*")


def test_a_job_without_an_answer_says_that_the_operator_has_not_looked():
    body = {
        "metadata": {"name": "x", "namespace": "default", "uid": "x", "creationTimestamp": format_time(NOW)},
        "spec": {"units": 5, "deadline": "60s", "pool": "main"},
    }
    one(why(job_of(body), None, NOW + 42, {}), r"It has no answer yet, 42s after its creation: .*")
    said = {"type": "Admitted", "status": "False", "reason": "PoolNotFound", "message": "there is no Pool main"}
    missing = job_of({**body, "status": {"state": "Waiting", "conditions": [said]}})
    one(why(missing, None, NOW + 42, {}), r"It has no promise \(PoolNotFound\): there is no Pool main\.")


def test_an_edit_that_is_not_in_force_is_told():
    cluster = Cluster().after(10, A)
    cluster.world.apply(replace(A, deadline=NOW + 30, generation=2))
    one(cluster.after(15).why("a"), r"The last edit of its spec is not in force \(EditRefused\): .*")


def test_without_its_pool_less_is_said_and_that_it_is_less():
    cluster = Cluster().after(10, A, asked("b", units=60, within=200), asked("no", units=300, within=90))
    for uid in ("a", "b", "no"):
        assert "What the pool's processors do is not known here." in cluster.why_alone(uid)
    one(cluster.why_alone("b"), r"Its first chunk is planned to start at 08:01:0\dZ \(in 5\ds\)\.")


@pytest.mark.parametrize("count", [3, 30])
def test_many_sentences_of_one_kind_are_counted(count):
    jobs = [asked(f"j{i}", units=20, within=2000) for i in range(count)]
    found = Cluster().after(5, A, *jobs, asked("no", units=9000, within=90)).why("no")
    told = [text for text in found if re.match(r"default/\w+ (runs|is promised)", text)]
    assert len(told) == min(count + 1, SHOWN)
    assert any(re.fullmatch(rf"And {count + 1 - SHOWN} more jobs run or are promised\.", text) for text in found) == (
        count >= SHOWN
    )

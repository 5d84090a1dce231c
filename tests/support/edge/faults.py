"""What goes wrong in a play."""

from edge.apiserver import ENDED
from edge.kinds import kind_of
from edge.plan import POOL, SPACE
from edge.replica import SYSTEM
from edge.users import BATCH_JOBS, JOBS
from punctual.kube.election.elector import Timing
from punctual.labels import JOB_UID_LABEL

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/punctual"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
UNAWARE = 3.0
"""Seconds after a restore in which a leader may not know of it: it renews the Lease each two seconds."""


class Faults:
    """A part of the `World`: a method for each fault. It returns what ends the fault."""

    def _of(self, act):
        return self.leader() if act.target == "leader" else self.replicas[act.target]

    def _freeze(self, act):
        process = self._of(act).process
        self.loop.freeze(process)

        def thaw():
            process.frozen = False

        return thaw

    def _kill(self, act):
        replica = self._of(act)
        replica.kill()
        return lambda: self._again(replica)

    def _stop(self, act):
        self._of(act).stop()
        return lambda: None

    def _slow(self, act):
        process = self._of(act).process
        self.loop.slow(process, act.value)

        def undo():
            process.slow = 0.0

        return undo

    def _cut(self, act):
        return self._cut_ways((name := self._of(act).name, "server"), ("server", name))

    def _cut_answers(self, act):
        return self._cut_ways(("server", self._of(act).name))

    def _cut_agent(self, act):
        name = f"agent-{act.target}"
        return self._cut_ways(*((a, b) for r in self.replicas for a, b in ((name, r), (r, name))))

    def _cut_ways(self, *ways):
        self.network.cut.update(ways)
        return lambda: self.network.cut.difference_update(ways)

    def _deaf_watches(self, act):
        name = self._of(act).name
        self.network.deaf.add(name)
        return lambda: self.network.deaf.discard(name)

    def _late_watches(self, act):
        name = self._of(act).name
        self.network.lag[name] = act.value
        return lambda: self.network.lag.pop(name, None)

    def _stale_lists(self, act):
        replica = self._of(act)
        if watches := self.watches.get(replica.process):
            watches.renew()
        return self.network.fall_behind(replica.name)

    def _kopf_loses(self, act):
        name = self._of(act).name
        self.losing[name] = act.value
        return lambda: self.losing.pop(name, None)

    def _kopf_ends(self, act):
        if watches := self.watches.get(self._of(act).process):
            watches.end(act.value)
        return lambda: None

    def _busy_server(self, act):
        self.network.refusing = act.value
        return lambda: setattr(self.network, "refusing", 0.0)

    def _lost_answers(self, act):
        self.network.losing = act.value
        return lambda: setattr(self.network, "losing", 0.0)

    def _compact(self, _):
        self.server.store.compact()
        return lambda: None

    def _delete_lease(self, _):
        self.call("DELETE", LEASE)
        self._told = self.loop.now + Timing().renew
        return lambda: None

    def _restore(self, act):
        """Take a snapshot of the store, and bring it back later. ``act.value``: how far versions are bumped then."""
        store = self.server.store
        saved, version = dict(store.objects), store.version
        return lambda: self._bring_back(saved, version, act.value)

    def _bring_back(self, saved, version, bump):
        """Let the store be as it was, and its servers, controllers and kubelets begin anew, as they must after that.

        Replicas and agents go on. The user's own watches are told that their versions are of another time.
        """
        store = self.server.store
        self.network.end_watches()
        self.network.relists.add(self._user_name)
        self.history.listens = False
        for path, body in list(store.objects.items()):
            if path not in saved or _is_other(saved[path], body):
                store.remove(kind_of(path).resource, path, body)
        for path, body in saved.items():
            if path not in store.objects:
                self.machines.lose(body)
            if store.objects.get(path) is not body:
                store.put(kind_of(path).resource, path, body)
        store.set_back(version, bump=bump)
        self.history.listens = True
        self.history.begin_anew(store.objects.values(), unaware=UNAWARE)
        self.jobs.begin_anew()
        self._forget_what_was_lost()
        self._told = self.loop.now + UNAWARE
        self.restored = self.loop.now

    def _forget_what_was_lost(self):
        """Let what users and the scribe know be what is there."""
        there = self._there(JOBS)
        for name, body in there.items():
            if (wish := self.former.pop(body["metadata"]["uid"], None)) is not None:
                self.wishes[name] = wish
        for name in [name for name in self.wishes if name not in there and name not in self._there(BATCH_JOBS)]:
            del self.wishes[name]
        for wish in self.wishes.values():
            wish.deleted = False
        for name, body in there.items():
            if body["spec"].get("suspend") and "ownerReferences" not in body["metadata"]:
                self.call("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": None}})  # as its user had done, or will
        self.scribe.pods.clear()
        uids = {body["metadata"]["uid"] for body in there.values()}
        for uid, job in list(self.scribe.jobs.items()):
            job.statuses.clear()
            job.times.clear()
            job.gaps += 1
            if uid not in uids:
                del self.scribe.jobs[uid]

    def _clock_step(self, act):
        self.clock_step += act.value
        return lambda: setattr(self, "clock_step", self.clock_step - act.value)

    def _kill_agent(self, act):
        self.agents[act.target].kill()
        return self.agents[act.target].begin

    def _cut_kubelet(self, act):
        self.machines.cut.add(act.target)
        return lambda: self.machines.mend(act.target)

    def _evict(self, _):
        pods = [path for path, body in self.server.store.objects.items() if self._is_chunk(path, body)]
        if pods:
            self.call("DELETE", self.random.choice(pods))
        return lambda: None

    def _is_chunk(self, path, body):
        """Return whether it is a pod of a job that has not ended: what has, must stay until it is accounted."""
        ours = path.startswith(f"{PODS}/") and JOB_UID_LABEL in (body["metadata"].get("labels") or {})
        return ours and body["status"]["phase"] not in ENDED

    def _node_down(self, act):
        self.machines.node_is(act.target, "Unknown")
        self.machines.cut.add(act.target)

        def back():
            self.machines.node_is(act.target, "True")
            self.machines.mend(act.target)

        return back

    def _hide_devices(self, act):
        self.machines.show_devices(act.target, shown=False)
        return lambda: self.machines.show_devices(act.target, shown=True)

    def _foreign_pod(self, act):
        name = f"foreign-{self.loop.now:.0f}"
        spec = {
            "nodeSelector": {"pool": POOL},
            "containers": [{"name": "main", "image": "forever", "resources": {"requests": {"cpu": "700m"}}}],
        }
        self.call("POST", PODS, {"metadata": {"name": name, "namespace": SPACE}, "spec": spec})
        return lambda: self.call("DELETE", f"{PODS}/{name}")

    def _quota(self, _):
        self.refuses_pods = True
        return lambda: setattr(self, "refuses_pods", False)


def _is_other(saved, body):
    """Return whether what was saved is another object, or a pod that its kubelet does not have yet."""
    bound, binds = (one.get("spec", {}).get("nodeName") for one in (saved, body))
    return saved["metadata"]["uid"] != body["metadata"]["uid"] or bound != binds

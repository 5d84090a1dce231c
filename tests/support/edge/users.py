"""What users do to the objects of a play."""

import dataclasses

from edge.plan import OURS, POOL, SPACE
from punctual.labels import DEADLINE, START_ANYWAY
from punctual.notation.duration import parse_time

IN_SPACE = f"/apis/{OURS}/namespaces/{SPACE}"
JOBS = f"{IN_SPACE}/divisiblejobs"
BATCH_JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
POOLS = f"/apis/{OURS}/pools"
NAMESPACES = "/api/v1/namespaces"
BLIND = 0.3
"""Seconds before and after a change that kopf does not see."""
AGAIN = 0.5
"""Seconds between two tries to create what is not gone yet."""
REFUSED = 300


class Users:
    """A part of the `World`: a method for each act. One that ends returns what ends it."""

    def _ask(self, *request):
        """Send a request; return whether it was done. An object may be gone, and its namespace too."""
        return self.call(*request)[0] < REFUSED

    def _create(self, act):
        if self._ask("POST", JOBS, act.value.body):
            wish = self.wishes[act.target] = dataclasses.replace(act.value, deadlines=list(act.value.deadlines))
            if any(act.what == "recreate pool" for act in self.plan.acts):
                wish.reasons += ("PoolNotFound", "PoolDeleted")

    def _delete(self, act):
        if self._ask("DELETE", f"{JOBS}/{act.target}"):
            self.wishes[act.target].deleted = True

    def _make(self, act):
        self._ask("POST", f"{IN_SPACE}/{act.target.partition('/')[0]}", act.value)

    def _make_batch_job(self, act):
        """Create an ordinary Job. ``act.value``: the Job, and the wish for its DivisibleJob."""
        job, wish = act.value
        code, made = self.call("POST", BATCH_JOBS, job)
        if code < REFUSED:
            if wish is None:
                self.refused.add(act.target)
                return
            created = parse_time(made["metadata"]["creationTimestamp"])
            wish = dataclasses.replace(wish, deadlines=list(wish.deadlines), created=created)
            if any(act.what == "recreate pool" for act in self.plan.acts):
                wish.reasons += ("PoolNotFound", "PoolDeleted")
            self.wishes[act.target] = wish

    def _delete_batch_job(self, act):
        if self._ask("DELETE", f"{BATCH_JOBS}/{act.target}"):
            self.wishes[act.target].deleted = True

    def _suspend_batch_job(self, act):
        path = f"{BATCH_JOBS}/{act.target}"
        if (self._there(BATCH_JOBS).get(act.target) or {"spec": {"suspend": True}})["spec"]["suspend"]:
            return None
        self.call("PATCH", path, {"spec": {"suspend": True}})
        return lambda: self.call("PATCH", path, {"spec": {"suspend": False}})

    def _edit_batch_deadline(self, act):
        notes = {DEADLINE: f"{act.value}s"}
        if self._ask("PATCH", f"{BATCH_JOBS}/{act.target}", {"metadata": {"annotations": notes}}):
            self.wishes[act.target].deadlines.append(float(act.value))

    def _start_anyway(self, act):
        """Say whether an ordinary Job starts although it is refused. ``act.value``: true or false."""
        self._ask("PATCH", f"{BATCH_JOBS}/{act.target}", {"metadata": {"annotations": {START_ANYWAY: act.value}}})

    def _delete_promise(self, act):
        """Delete the DivisibleJob of an ordinary Job. Another one is asked for."""
        there = self._there(JOBS).get(act.target)
        if there and self._ask("DELETE", f"{JOBS}/{act.target}"):
            self.former[there["metadata"]["uid"]] = dataclasses.replace(self.wishes[act.target], deleted=True)

    def _make_pod(self, act):
        self._ask("POST", f"{NAMESPACES}/{SPACE}/pods", act.value)

    def _edit_rate(self, act):
        path = f"{IN_SPACE}/targetrates/{act.target}"
        if (there := self.server.store.objects.get(path)) is None:
            return None
        self.call("PATCH", path, {"spec": {"rate": act.value}})
        return lambda: self.call("PATCH", path, {"spec": {"rate": there["spec"]["rate"]}})

    def _unmake(self, act):
        self._ask("DELETE", f"{IN_SPACE}/{act.target}")

    def _remake(self, act):
        """Delete an object and create it again at once."""
        path = f"{IN_SPACE}/{act.target}"
        if there := self.server.store.objects.get(path):
            self._again_below(path.rpartition("/")[0], there)

    def _suspend(self, act):
        path = f"{JOBS}/{act.target}"
        self.call("PATCH", path, {"spec": {"suspend": True}})
        return lambda: self.call("PATCH", path, {"spec": {"suspend": None}})

    def _edit_deadline(self, act):
        if self._ask("PATCH", f"{JOBS}/{act.target}", {"spec": {"deadline": f"{act.value}s"}}):
            self.wishes[act.target].deadlines.append(float(act.value))

    def _edit_pool(self, act):
        before = {name: self.plan.pool["spec"].get(name) for name in act.value}
        self.call("PATCH", f"{POOLS}/{act.target}", {"spec": act.value})
        return lambda: self.call("PATCH", f"{POOLS}/{act.target}", {"spec": before})

    # objects that go and come again under their names

    def _recreate(self, act):
        """Create a job again as soon as it is gone. ``act.value``: kopf sees neither."""
        if act.target in self.wishes and act.target in self._there(JOBS):
            self._unseen(act, self._recreate_job, act.target)
            return lambda: None
        return None

    def _recreate_job(self, name):
        wish, there = self.wishes[name], self._there(JOBS).get(name)
        if there and self._ask("DELETE", f"{JOBS}/{name}"):
            self.former[there["metadata"]["uid"]] = dataclasses.replace(wish, deleted=True)
            body = {**wish.body, "spec": there["spec"]}  # as it was edited
            self.wishes[name] = dataclasses.replace(wish, body=body, deadlines=wish.deadlines[-1:])
            self.call("POST", JOBS, body)

    def _recreate_pool(self, act):
        """Delete the pool, and create it again as soon as it is gone. Promises delay that."""
        self._unseen(act, self._again_below, POOLS, self._there(POOLS)[POOL])
        return lambda: None

    def _again_below(self, path, body, *, deleted=False):
        name = body["metadata"]["name"]
        if not deleted:
            self.call("DELETE", f"{path}/{name}")
        if name in self._there(path):
            self.loop.in_world(AGAIN, lambda: self._again_below(path, body, deleted=True))
        else:
            self.call("POST", path, {**body, "metadata": {"name": name}})

    def _namespace_goes(self, _):
        """Delete the namespace with all that is in it. It comes again."""
        there = self._there(JOBS) | self._there(BATCH_JOBS)
        for name, wish in self.wishes.items():
            wish.deleted = wish.deleted or name in there
        self._ask("DELETE", f"{NAMESPACES}/{SPACE}")
        return lambda: self._again_below(NAMESPACES, {"metadata": {"name": SPACE}}, deleted=True)

    def _unseen(self, act, do, *args):
        """Do something, and keep kopf from seeing it if the act says so."""
        if not act.value:
            do(*args)
            return
        self.blind = True
        self.loop.in_world(BLIND, do, *args)
        self.loop.in_world(2 * BLIND, setattr, self, "blind", False)

    def _there(self, path):
        """Return the objects of a collection by name."""
        return {
            at.rpartition("/")[2]: body
            for at, body in self.server.store.objects.items()
            if at.rpartition("/")[0] == path
        }

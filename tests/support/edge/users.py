"""What users do to the objects of a play."""

from edge.plan import OURS, SPACE

JOBS = f"/apis/{OURS}/namespaces/{SPACE}/divisiblejobs"
POOLS = f"/apis/{OURS}/pools"


class Users:
    """A part of the `World`: a method for each act. One that ends returns what ends it."""

    def _create(self, act):
        self.wishes[act.target] = act.value
        self.call("POST", JOBS, act.value.body)

    def _delete(self, act):
        self.wishes[act.target].deleted = True
        self.call("DELETE", f"{JOBS}/{act.target}")

    def _suspend(self, act):
        path = f"{JOBS}/{act.target}"
        self.call("PATCH", path, {"spec": {"suspend": True}})
        return lambda: self.call("PATCH", path, {"spec": {"suspend": None}})

    def _edit_deadline(self, act):
        self.wishes[act.target].deadlines.append(float(act.value))
        self.call("PATCH", f"{JOBS}/{act.target}", {"spec": {"deadline": f"{act.value}s"}})

    def _edit_pool(self, act):
        before = {name: self.plan.pool["spec"].get(name) for name in act.value}
        self.call("PATCH", f"{POOLS}/{act.target}", {"spec": act.value})
        return lambda: self.call("PATCH", f"{POOLS}/{act.target}", {"spec": before})

"""A pod's life on its node: image, init containers, containers that end in any order, limits, deletion.

What a container does stands in its image:

    work:CHI            CHI seconds for each unit of its range, after the container's start
    runs:SECONDS-CODE   ends so
    oom:SECONDS         is killed for memory then
    fills:SECONDS       has its pod evicted then: it writes more than its limit of local storage
    forever             until it is ended
    absent/…            cannot be pulled
    slow/…              is pulled in ten seconds, then as what follows
"""

import math
import re

from cluster_model.amounts import is_sidecar
from cluster_model.clock import written

PULL, SLOW, BEGIN, STOP = 0.3, 10.0, 0.2, 0.5
"""Seconds of a pull, of a slow one, until containers begin, and from SIGTERM to the end."""
EVICTED = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "


class Life:
    """One pod on its node since ``bound``: when something changes, and what has come of it at a moment."""

    def __init__(self, body, bound):
        self.body = body
        self.bound = bound
        self.end = None  # (time, reason and message of the pod's own): all that runs is killed then
        self.deleted = math.inf
        self.agreed = None
        spec = body["spec"]
        self.limit(spec.get("activeDeadlineSeconds"))
        at = bound
        self.inits = []
        for init in spec.get("initContainers") or ():
            at += _pull(init)
            stays = is_sidecar(init)
            seconds, code, reason = (math.inf, 0, "") if stays else self._does(init)
            self.inits.append((init["name"], at, at + seconds, code, reason, stays))
            if not stays:
                at += seconds
                if code:
                    self.end = self.end or (at, None)
                    at = math.inf
        self.began = at + max(_pull(c) for c in spec["containers"]) + BEGIN
        self.ends = {}
        for container in spec["containers"]:
            seconds, code, reason = self._does(container)
            if reason == "Evicted":
                self._end(self.began + seconds, ("Evicted", EVICTED))
                seconds = math.inf
            self.ends[container["name"]] = (self.began + seconds, code, reason)

    def _does(self, container):
        kind, *numbers = _program(container)
        match kind:
            case "work":
                begin, last = _range(container)
                return _pace(container) * (last - begin), 0, "Completed"
            case "runs":
                code = int(numbers[1])
                return float(numbers[0]), code, "Error" if code else "Completed"
            case "oom":
                return float(numbers[0]), 137, "OOMKilled"
            case "fills":
                return float(numbers[0]), 137, "Evicted"
        return math.inf, 0, ""

    def limit(self, seconds):
        """Let the kubelet end the pod so long after its start."""
        if seconds is not None:
            self._end(self.bound + seconds + STOP, ("DeadlineExceeded", "Pod was active longer than its deadline"))

    def _end(self, at, why):
        if self.end is None or at < self.end[0]:
            self.end = at, why

    def delete(self, now):
        """End the pod: its object goes when its containers have ended. The kubelet ignores a second request."""
        if self.deleted == math.inf:
            self.body["metadata"]["deletionTimestamp"] = written(now)
            self.deleted = now + STOP

    def work(self, now, *, offered=None):
        """Return how many units are done, and the end of its range that a worker has agreed to, if one was offered."""
        found = next((c for c in self.body["spec"]["containers"] if _kind(c) == "work"), None)
        if found is None:
            return 0, None
        chi, (begin, last) = _pace(found), _range(found)
        done = min(last - begin, max(0, math.floor((min(now, self.cut) - self.began) / chi + 1e-9)))
        if offered is not None and self.agreed is None and begin + done < last:
            self.agreed = min(last, max(offered, begin + done + 1))
            _, code, reason = self.ends[found["name"]]
            self.ends[found["name"]] = self.began + (self.agreed - begin) * chi, code, reason
        return done, self.agreed

    def times(self):
        """Return the moments at which something changes."""
        own = [self.bound, self.began, self.deleted, *(end for end, _, _ in self.ends.values())]
        if self.end:
            own.append(self.end[0])
        for _, begin, end, _, _, stays in self.inits:
            own += [begin, math.inf if stays else end]
        return [at for at in own if at < math.inf]

    @property
    def cut(self):
        """When all that still runs is killed."""
        return min(self.deleted, self.end[0] if self.end else math.inf)

    def gone(self, now):
        return now >= self.deleted

    def status(self, now):
        """Return the pod's status."""
        seen = min(now, self.cut)
        containers = [self._container(name, now) for name in self.ends]
        inits = [self._init(init, seen) for init in self.inits]
        status = {
            "phase": self._phase(now, containers),
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": containers,
            "initContainerStatuses": inits,
        }
        if self.end and now >= self.end[0] and self.end[1] and self.end[0] <= min(self.deleted, self._over()):
            status["reason"], status["message"] = self.end[1]
        return status

    def _over(self):
        """When all containers would have ended by themselves."""
        return max(end for end, _, _ in self.ends.values())

    def _phase(self, now, containers):
        if now >= self.cut:
            rightly = all((c["state"].get("terminated") or {}).get("exitCode") == 0 for c in containers)
            return "Succeeded" if rightly and self._over() <= self.cut else "Failed"
        if now < self.began:
            return "Pending"
        if now < self._over():
            return "Running"
        return "Failed" if any(code for _, code, _ in self.ends.values()) else "Succeeded"

    def _container(self, name, now):
        end, code, reason = self.ends[name]
        if self.cut < self.began or now < self.began:
            state = {"waiting": self._waits(name)}
        elif min(now, self.cut) >= end:
            state = {"terminated": _terminated(self.began, end, code, reason)}
        elif now >= self.cut:
            state = {"terminated": _terminated(self.began, self.cut, 137, "Error")}
        else:
            state = {"running": {"startedAt": written(self.began)}}
        return {"name": name, "state": state}

    def _waits(self, name):
        spec = self.body["spec"]
        (container,) = (c for c in spec["containers"] if c["name"] == name)
        if container["image"].startswith("absent/"):
            return {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
        return {"reason": "PodInitializing" if self.inits else "ContainerCreating"}

    def _init(self, init, now):
        name, begin, end, code, reason, stays = init
        if now < begin:
            return {"name": name, "state": {"waiting": {"reason": "PodInitializing"}}}
        if now < end or stays:
            return {"name": name, "state": {"running": {"startedAt": written(begin)}}}
        return {"name": name, "state": {"terminated": _terminated(begin, end, code, reason)}}


def _program(container):
    return re.split("[:-]", container["image"].removeprefix("slow/"))


def _kind(container):
    return _program(container)[0]


def _pace(container):
    return float(_program(container)[1])


def _range(container):
    told = {e["name"]: e.get("value") for e in container["env"]}
    return int(told["PUNCTUAL_BEGIN"]), int(told["PUNCTUAL_END"])


def _pull(container):
    if container["image"].startswith("absent/"):
        return math.inf
    return SLOW if container["image"].startswith("slow/") else PULL


def _terminated(began, ended, code, reason):
    return {"startedAt": written(began), "finishedAt": written(ended), "exitCode": code, "reason": reason}

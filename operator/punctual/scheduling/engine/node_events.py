"""Events of nodes: processors come and go, and chunks on lost nodes are taken back."""

from dataclasses import dataclass

from punctual import reasons
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.model.events import OVER, NodeObserved
from punctual.scheduling.state.pool_state import PoolState


@dataclass(slots=True)
class NodeEvents:
    """Processes what is observed of nodes."""

    state: PoolState
    lifecycle: Lifecycle

    def observed(self, now: float, node: NodeObserved) -> None:
        """Count the processors of a node; a node that is not ready any more loses its chunks."""
        was = self.state.processors.nodes.get(node.name)
        before = self._fitting(node.name)
        if self.state.processors.observe(node, self.state.spec):
            self.state.outdated.capacity_changed()
        if before != (after := self._fitting(node.name)):
            self.state.outdated.capacity_changed()
            if was is not None and was.taints == node.taints:  # a taint is not against these jobs alone
                for uid in sorted(before - after):
                    self.state.outdated.caused_by(uid, reasons.CAPACITY_LOST)
        self.state.taint()
        if node.ready and (was is None or not was.ready):
            for (
                pod
            ) in self.state.pods.seen.values():  # a pod that was lost with its node keeps its processor until it ends
                if pod.node == node.name and pod.phase not in OVER:
                    self.state.place(pod)
        elif not node.ready and was is not None and was.ready:
            self._lose(now, node.name)

    def _fitting(self, name: str) -> set[str]:
        """Return the live jobs with rules that let their pods run on a node."""
        if (node := self.state.processors.nodes.get(name)) is None:
            return set()
        return {st.job.uid for st in self.state.live.with_rules() if st.job.rules.objection(node) is None}

    def gone(self, now: float, name: str) -> None:
        """Drop a node that is gone, with its chunks."""
        if self.state.processors.forget(name):
            self.state.outdated.capacity_changed()
        self.state.holding.tainted.discard(name)
        self._lose(now, name)

    def _lose(self, now: float, name: str) -> None:
        """Take back the chunks of a lost node. Results from that node are no longer accounted."""
        for uid in list(self.state.active):
            st = self.state.jobs[uid]
            for chunk in [c for c in st.record.chunks if c.node == name]:
                self.lifecycle.end_and_lose(
                    now, st, chunk, reasons.NODE_LOST, f"node {name} is not ready or gone", own=False
                )
        for place in [p for p in self.state.processors.occupants if p.node == name]:
            self.state.processors.leave(self.state.processors.occupants[place])

    def lose_gone(self, now: float) -> None:
        """Take back chunks on nodes that went away while there was no leader: no event will report them."""
        nodes = self.state.processors.nodes
        on = {c.node for uid in self.state.active for c in self.state.jobs[uid].record.chunks}
        for name in sorted(on):
            if name not in nodes or not nodes[name].ready:
                self._lose(now, name)

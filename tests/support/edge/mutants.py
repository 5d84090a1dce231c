"""Faults planted by hand at the edge, one at a time: does the net find them?

Each is a module below ``operator/punctual/kube``, of the agent or of the rates, a piece of its text, and what stands
there instead.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ELSEWHERE = {"punctual_agent": "node-agent", "rates": "operator/punctual"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted fault."""

    name: str
    module: str
    text: str
    instead: str

    @property
    def path(self):
        """The module's path below the root."""
        return Path(ELSEWHERE.get(self.module.partition("/")[0], "operator/punctual/kube"), self.module)

    def plant(self, folder):
        """Copy operator and agent into a folder, with the fault; return the folder."""
        for part in ("operator", "node-agent"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder, self.path)
        path.write_text(path.read_text().replace(self.text, self.instead))
        return folder


MUTANTS = (
    # election
    Mutant(
        "an epoch is not raised",
        "election/elector.py",
        "self._above, self._candidate.min_epoch()) + 1",
        "self._above, self._candidate.min_epoch())",
    ),
    Mutant(
        "a leader goes on for twenty seconds after its last renewal",
        "election/elector.py",
        "                self._until = sent + self._timing.renew\n                return True",
        "                self._until = sent + self._timing.renew + 20\n                return True",
    ),
    Mutant(
        "a replica leads in a term that is over, as it leads in another one",
        "election/elector.py",
        "return self.leading and self._epoch == epoch",
        "return self.leading",
    ),
    Mutant(
        "a standby does not wait for the holder's time",
        "election/elector.py",
        'return self._seen_at + float(self._seen.get("leaseDurationSeconds", 0)) - self._monotonic()',
        "return 0.0",
    ),
    Mutant(
        "a conflict counts as a renewal",
        "election/elector.py",
        "                if not await self._still_ours():\n                    return False\n            else:",
        "                return True\n            else:",
    ),
    Mutant(
        "a store that was set back is not noticed",
        "known/revision.py",
        "    if 0 < number(now) < number(before):",
        "    if False:",
    ),
    Mutant(
        "a leader does not go on above the epochs of agents",
        "main.py",
        "            self._elector.begin_above(epoch)\n",
        "",
    ),
    # fence and takeover
    Mutant(
        "objects are not stamped",
        "takeover/fencing.py",
        "            if ended(body):\n                return Stamped(body)\n            meta",
        "            return Stamped(body)\n            meta",
    ),
    Mutant(
        "the body before the stamp is restored",
        "takeover/fencing.py",
        "                self._last = path, patch\n                self.note_progress()\n"
        "                return body\n        raise",
        "                self._last = path, patch\n                self.note_progress()\n"
        "                return {**body, 'status': {'epoch': self._epoch}}\n        raise",
    ),
    Mutant(
        "known objects that a list lacks are not read",
        "takeover/fencing.py",
        "            kind, [one for uid, one in known.items() if not (selector and aside(uid, None))]\n",
        "            kind, []\n",
    ),
    Mutant(
        "a stamp that a newer leader refuses is passed over",
        "takeover/fencing.py",
        "                    if isinstance(error, Fenced) and not self._is_forged(resource, body):\n"
        "                        raise\n",
        "",
    ),
    Mutant(
        "a job that was put aside is not read late",
        "leader/kinds.py",
        "                    await self._read(kind, known)",
        "                    pass",
    ),
    Mutant(
        "a job may be decided before its status is read",
        "kinds/jobs/jobs.py",
        "        return not known.term.read and (known.epoch != 0 or known.created <= self._fence.begun + SAME_TIME)",
        "        return False",
    ),
    Mutant(
        "a job of an earlier term is remembered",
        "known/jobs.py",
        "        self.term = JobInTerm()\n",
        "        pass\n",
    ),
    Mutant(
        "the pods of an earlier term are remembered",
        "cluster/caches.py",
        "        self.pods.forget_term()\n",
        "",
    ),
    Mutant(
        "a leader that meets a newer epoch goes on",
        "leader/term.py",
        "        if epoch > self.epoch:\n",
        "        if epoch > self.epoch + 1000:\n",
    ),
    # writer
    Mutant(
        "it is not checked before a write whether this replica leads",
        "writes/writer.py",
        "        if not self._owner.leading():\n            self._end_term",
        "        if False:\n            self._end_term",
    ),
    Mutant(
        "a failed write is dropped",
        "writes/writer.py",
        "                self._try_again(queue, entry, error)",
        '                self._finish(queue, entry, Outcome(queue.key, entry.operation, "done"))',
    ),
    Mutant(
        "a status is put over whatever is there",
        "writes/operations.py",
        'body = operation.body | {"metadata": meta | {"resourceVersion": version}} if uid else operation.body',
        "body = operation.body",
    ),
    Mutant(
        "operations of one object overtake each other",
        "writes/write_queues.py",
        "            queue.entries.append(Entry(operation, self._clock.monotonic()))",
        "            queue.entries.insert(queue.state is State.BUSY, Entry(operation, self._clock.monotonic()))",
    ),
    Mutant(
        "a pod of another attempt counts as the one that was asked for",
        "writes/operations.py",
        "        if not operation.verify(pod):",
        "        if False:",
    ),
    Mutant(
        "a lost answer counts as a refusal",
        "writes/operations.py",
        "    except (errors.NotFound, errors.Replaced) as error:\n"
        '        return Outcome(key, operation, "gone", str(error))',
        "    except (errors.NotFound, errors.Replaced, errors.Unreachable) as error:\n"
        '        return Outcome(key, operation, "gone", str(error))',
    ),
    # informer
    Mutant(
        "a watch goes on behind a 410",
        "cluster/informer.py",
        '                if isinstance(error, errors.Gone):\n                    self._version = ""\n',
        "                if isinstance(error, errors.Gone):\n                    pass\n",
    ),
    Mutant(
        "a list tells of no deletions",
        "cluster/informer.py",
        "        for key in self._known.keys() - seen:\n            self._tell_gone(key)\n        self._version",
        "        self._version",
    ),
    Mutant(
        "an object of the same name is the same object",
        "cluster/informer.py",
        "        if known is not None and known[0] != uid:\n"
        "            self._tell_gone(key)\n            known = None\n",
        "",
    ),
    # resync
    Mutant(
        "resync finds no deletions",
        "cluster/resync.py",
        "            gone += [(resource, metadata_of(one)) for uid, one in known.items() if uid not in listed]\n",
        "",
    ),
    Mutant(
        "resync finds no edits",
        "cluster/resync.py",
        'if known is None or meta["generation"] > known.generation:',
        "if known is None:",
    ),
    Mutant(
        "after a long comparison, the next one is far away",
        "cluster/resync.py",
        "min(took / SHARE, LONGEST)",
        "took / SHARE",
    ),
    # the loop over all kinds
    Mutant(
        "a signal touches no job",
        "kinds/jobs/jobs.py",
        "                return [known for known in self._jobs.of_pool(pool) if self._depends_on_pool(known)]",
        "                return []",
    ),
    Mutant(
        "an object is considered while it is being read",
        "leader/kinds.py",
        " or known.term.reading",
        "",
    ),
    # reservations, target rates
    Mutant(
        "windows of an earlier leader are not read",
        "kinds/reservations/records.py",
        "        windows.by_name[windows.name(w.start)] = window\n",
        "        pass\n",
    ),
    Mutant(
        "a pool that starts does not learn of windows",
        "kinds/reservations/reservations.py",
        "        if known.deleting:\n            return ()\n",
        "        if True:\n            return ()\n",
    ),
    Mutant(
        "a target rate that is gone goes on",
        "kinds/rates/rates.py",
        "            self._mailbox.put(RateDeleted(known.uid))",
        "            pass",
    ),
    Mutant(
        "an agent that begins again takes back what it told of phases",
        "rates/phases.py",
        "        self.told = seen.phase or self.told",
        "        self.told = seen.phase",
    ),
    # reports
    Mutant(
        "an older report is accepted",
        "agents/report_server.py",
        '            if report.sequence < last.sequence:\n                raise _Refused("oldSequence")\n',
        "",
    ),
    Mutant(
        "a report that has seen a newer leader is accepted",
        "agents/report_server.py",
        '            self._receiver.heard_another(report.epoch)\n            raise _Refused("higherEpoch")\n',
        "            pass\n",
    ),
    # the agent and its exchange
    Mutant(
        "an agent forgets which epoch it has seen",
        "punctual_agent/agent.py",
        "        self._saved = Saved(saved.epoch, lease",
        "        self._saved = Saved(0, lease",
    ),
    Mutant(
        "an agent never says that a pod's files are final",
        "punctual_agent/agent.py",
        "                    pod.over = True\n",
        "                    pass\n",
    ),
    Mutant(
        "an agent does not say which end a worker honours",
        "punctual_agent/agent.py",
        "            end=pod.progress.end,\n",
        "            end=None,\n",
    ),
    Mutant(
        "an agent gives an application its CPU back when an answer is incomplete",
        "punctual_agent/agent.py",
        "self._release(points) if answer.applications_complete else []",
        "self._release(points)",
    ),
    # placeholders
    Mutant(
        "what small pods leave of their processors is not kept",
        "actors/placeholders.py",
        "    counts = Counter(kept.rests)\n",
        "    counts = Counter()\n",
    ),
    # gate
    Mutant(
        "a job is promised before the API server has tried its pod",
        "gate/admission_gate.py",
        "        if len(given) == len(questions):\n",
        "        if True:\n",
    ),
)

"""What ``punctual submit`` and ``punctual cancel`` print."""

import json
import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from punctual import reasons
from punctual.cli.cluster import tables
from punctual.cli.cluster.writes import PROMISED, REFUSED, Submitted
from punctual.cli.screen import offer_of
from punctual.notation.duration import format_time
from punctual.scheduling.model.wording import some, span
from punctual.view.jobs import JobView


def submitted(found: Sequence[Submitted], *, timeout: float, output: str) -> None:
    """Print the answers."""
    if output == "json":
        print(json.dumps([_document(one) for one in found]))
        return
    console = Console()
    for one in found:
        word, style = ("admitted as a guest", "bold green") if _is_guest(one) else _WORDS[one.answer]
        if one.ended:
            word = one.job.state.lower()
        name = f"{one.job.namespace}/{one.job.name}"
        by = "" if one.ended or one.job.reason == reasons.POOL_NOT_FOUND else f" by pool {one.job.pool}"
        line = Text.assemble((name, "bold"), f" {one.changed}: ", (word, style), by)
        if one.accepted and one.answer == PROMISED:
            line.append(", with the deadline that was offered")
        console.print(line, soft_wrap=True)
        for text, tone in _lines(one, timeout):
            console.print(Text(f"  {text}", tone), soft_wrap=True)
    if output == "wide":
        tables.show(tables.jobs([one.job for one in found], time.time(), namespaces=True, wide=True))


_WORDS = (("promised", "bold green"), ("refused", "bold yellow"), ("not answered yet", "bold cyan"))


def _is_guest(one: Submitted) -> bool:
    return one.job.guest and one.answer == PROMISED


def _lines(one: Submitted, timeout: float) -> list[tuple[str, str]]:
    job = one.job
    if one.ended:
        return [(f"{job.reason}: {job.message}", "yellow" if one.answer else "")]
    admitted = job.conditions.get("Admitted")
    lines = [(f"{admitted.reason}: {admitted.message}", "")] if admitted and job.answered else []
    if one.answer == PROMISED and job.deadline is not None and job.finish is not None:
        at = format_time(round(job.deadline))
        lines.append((f"the deadline {at} is kept by plan with {span(job.deadline - job.finish)} left", ""))
    elif one.answer == REFUSED and job.has_offer:
        lines.append((offer_of(job), "yellow"))
    elif one.answer == REFUSED and job.offer_until is not None:
        lines.append(("no other deadline or load would be promised", "yellow"))
    elif one.waits_for_pool:
        lines.append(("it waits for the pool until its deadline", "yellow"))
    elif one.answer not in {PROMISED, REFUSED}:
        lines.append((f"no answer within {span(timeout)}: the job stays; see punctual why {job.name}", "yellow"))
    return lines


def _document(one: Submitted) -> dict[str, object]:
    answer = "guest" if _is_guest(one) else ("promised", "refused", "none")[one.answer]
    if one.ended:
        answer = one.job.state.lower()
    more = {"offerAccepted": True} if one.accepted else {}
    return {**tables.job_document(one.job), "changed": one.changed, "answer": answer, **more}


def cancelled(found: Sequence[JobView], *, output: str) -> None:
    """Print what was deleted."""
    if output == "json":
        print(json.dumps([tables.job_document(job) for job in found]))
        return
    console = Console()
    for job in found:
        did = f"{job.done} of {some(job.units, 'unit')} were done"
        chunks = f", {some(len(job.chunks), 'chunk')} ran: their pods are deleted too" if job.chunks else ""
        name = Text.assemble(
            (f"{job.namespace}/{job.name}", "bold"), f" deleted. It was {job.state.lower()}; {did}{chunks}"
        )
        console.print(name, soft_wrap=True)
    if output == "wide" and found:
        tables.show(tables.jobs(found, time.time(), namespaces=True, wide=True))

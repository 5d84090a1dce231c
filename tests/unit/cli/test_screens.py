"""Pictures of the terminal screens, as SVG in build/pictures/screens: each is drawn from a real state, to look at."""

import io
import re
from dataclasses import replace
from pathlib import Path

import guest_job
import pytest
from rich.console import Console
from state import NOW, pool_body, spec_of, state
from world import Worker, World, job

from punctual.cli.cluster import pools, tables, top, why
from punctual.cli.screen import screen
from punctual.kube.snapshot import Snapshot
from punctual.view.changes import Change
from punctual.view.guests import Rules, last_decision
from punctual.view.history import ValueHistory
from punctual.view.jobs import Board, job_of, pod_of
from punctual.view.pools import pool_of
from punctual.view.why import why as explain
from punctual.view.why import why_guest_chunk

ROOT = Path(__file__).parents[3]
SCREENS = ROOT / "build/pictures/screens"


def asked(uid, *, within, **more):
    more.setdefault("namespace", "demo")
    return job(uid, deadline=NOW + within, arrival=NOW, **more)


@pytest.fixture(scope="module")
def run():
    """A pool in which jobs run, wait, are late and were refused: each second's objects."""
    body = pool_body()
    w = World(spec=spec_of(body), now=NOW)
    w.workers = lambda uid, chunk: Worker(pace=1.4 if uid == "mertens" else 1.0)
    w.node("worker-1", 4.0)
    w.node("worker-2", 4.0)
    w.tick()
    w.apply(asked("primes", units=400, within=135))
    w.apply(asked("mertens", units=120, within=80))
    states = []
    for second in range(1, 101):
        if second == 30:
            w.apply(asked("clocks", units=500, within=120, min_processors=2))
            w.apply(asked("invoices", units=90, within=400, namespace="billing", name="invoices"))
        if second == 60:
            w.apply(asked("report", units=160, within=390, reduce_duration=5.0))
        w.run(NOW + second)
        states.append((w.now, state(w, body)))
    return states


def board_of(found):
    board = Board()
    board.apply(Change(item["kind"], "ADDED", item) for item in found["items"])
    return board


def draw(name, *parts, width=118):
    """Print on a terminal of this width, and leave the picture. Return the text."""
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for part in parts:
        console.print(part)
    SCREENS.mkdir(parents=True, exist_ok=True)
    text = console.export_text(clear=False)
    picture = console.export_svg(title=f"kubectl punctual {name}")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # nothing is fetched from elsewhere
    (SCREENS / f"{name}.svg").write_text(picture.replace("<text ", '<text xml:space="preserve" '))
    return text


def test_top(run):
    history = ValueHistory()
    for now, found in run:
        top.note(history, board_of(found), now)
    now, found = run[-1]
    found = {**found, "items": [*found["items"], guest_job.guest_job()]}
    past = tables.Past(history, now)
    text = draw("top", top.screen(board_of(found), past, everywhere=True, wide=False, height=30))
    assert "main" in text
    assert re.search(r"sums .* none", text)
    assert {"primes", "mertens", "clocks", "invoices", "report"} <= set(text.split())


def test_watch(run):
    now, found = run[69]
    text = draw("watch", screen(board_of(found), now, width=118, height=40))
    assert "ends in" in text


def test_watch_at_eighty_columns_has_all_times():
    board = Board()
    now, hours = NOW, {"deadline": 7.0 * 3600, "eta": NOW + 5.0 * 3600}
    guest = job_of(guest_job.guest_job())
    board.jobs["a"] = replace(guest, uid="a", guest=False, deadline=NOW + hours["deadline"], eta=hours["eta"])
    for width in (60, 80):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(screen(board, now, width=width, height=40))
        text = " ".join(console.export_text().split())
        assert "…" not in text
        assert {"7:00:00", "5:00:00", "2:00:00", "Running"} <= set(text.split())
    assert "█" not in text


def test_watch_of_guests():
    board = Board()
    chunks = [
        guest_job.chunk(100, 140, done=12),
        guest_job.chunk(140, 180, node="n2", done=3, created=-5.0, attempt=2),
        guest_job.chunk(180, 200, ends=-2.0),
    ]
    board.apply([Change("DivisibleJob", "ADDED", guest_job.guest_job(chunks=chunks))])
    text = draw("watch of guests", screen(board, NOW, width=118, height=40))
    assert "no deadline" in text


@pytest.mark.parametrize("name", ["sums", "sums-100"])
def test_why_of_guests(name):
    found = job_of(guest_job.guest_job())
    pod = pod_of(guest_job.guest_pod())
    decision, rules = last_decision([guest_job.told(12.0)]), Rules()
    about_pod = why_guest_chunk(found, found.chunks[0], NOW, told=decision, rules=rules, pod=pod)
    told = explain(found, None, NOW, {}) if name == "sums" else about_pod
    text = draw(f"why {name}", *why.parts(why.Explanation(f"demo/{name}", "Running", told, ())))
    assert text.startswith(f"demo/{name}  Running")
    assert ("n1 has been busy for" in text) == (name == "sums-100")


def test_pools_with_shares():
    shares = [{"namespace": "vision", "maxShare": "60%"}]
    body = pool_body(maxShare="25%", namespaceShares=shares)
    w = World(spec=spec_of(body), now=NOW)
    w.node("worker-1", 4.0)
    w.tick()
    w.apply(asked("primes", units=150, within=100, namespace="vision", theta_cp=0.0))
    w.apply(asked("report", units=50, within=102, theta_cp=0.0))
    w.tick()
    found = state(w, body)
    view = pools.outlook(Snapshot.of([found]).pool("main", now=NOW).view(), NOW)
    (line,) = pools.shares({"main": view, "other": None})
    assert line.plain == "promised of main: vision 38.3% of 60%, demo 12.5% of 25%"
    document = pools._document(pool_of(found["items"][0]), view)
    assert document["shares"][1] == {
        "namespace": "vision",
        "promised": pytest.approx(0.3827, abs=1e-3),
        "maxShare": 0.6,
    }


def test_pools(run):
    now, found = run[69]
    snapshot = Snapshot.of([found])
    board = board_of(found)
    view = {"main": pools.outlook(snapshot.pool("main", now=now).view(), now)}
    text = draw("pools", pools.table(list(board.pools.values()), view, now, wide=True))
    assert "PROMISED" in text
    assert "…" not in text


@pytest.mark.parametrize("name", ["clocks", "report", "mertens"])
def test_why(run, name):
    now, found = run[69]
    jobs = board_of(found).jobs
    view = Snapshot.of([found]).pool("main", now=now).view()
    names = {uid: f"{one.namespace}/{one.name}" for uid, one in jobs.items() if one.namespace == "demo"}
    told = why.Explanation(f"demo/{name}", jobs[name].state, explain(jobs[name], view, now, names), ())
    text = draw(f"why {name}", *why.parts(told))
    assert text.startswith(f"demo/{name}  {jobs[name].state}")
    assert {"clocks": "A job of another namespace", "report": "The reduce step", "mertens": "a unit takes 1.3 times"}[
        name
    ] in text

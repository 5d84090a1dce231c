"""The recorder against a real API server: events people can read, series, limits, and nothing but silence on errors."""

import asyncio
import contextlib

import pytest

from punctual.kube.api.resources import EVENTS
from punctual.kube.cluster.client import ApiClient
from punctual.kube.cluster.events import BURST, EventRecorder, Regarding


def job(namespace: str, uid: str = "u1") -> Regarding:
    return Regarding("punctual.dev/v1alpha1", "DivisibleJob", namespace, f"job-{uid}", uid)


@pytest.fixture
async def recorder(client):
    recorder = EventRecorder(client, controller="punctual.dev/operator", instance="punctual-0")
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def events(client: ApiClient, namespace: str) -> list:
    return (await client.list(EVENTS.path(namespace=namespace))).items


async def test_an_event_says_who_what_and_why(recorder, client, namespace):
    recorder.emit(job(namespace), "Warning", "Overrun", "is 3 s late: ünïcode", action="Replan")
    assert await recorder.flush(60)
    [event] = await events(client, namespace)
    assert event["regarding"] == {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "namespace": namespace,
        "name": "job-u1",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Overrun", "Replan")
    assert event["note"] == "is 3 s late: ünïcode"
    assert event["reportingController"] == "punctual.dev/operator"
    assert event["reportingInstance"] == "punctual-0"
    assert "series" not in event


@pytest.mark.parametrize(
    "name", ["a" * 199 + "." + "b" * 53, "a" * 199 + "-" + "b" * 53, "a" * 235 + ".b", "a." * 126 + "a"]
)
async def test_an_event_about_a_long_name_is_taken(client, namespace, name):
    recorder = EventRecorder(client, controller="punctual.dev/operator", instance="p" * 100 + "." + "q" * 100)
    task = asyncio.create_task(recorder.run())
    recorder.emit(
        Regarding("punctual.dev/v1alpha1", "DivisibleJob", namespace, name, "u1"), "Normal", "Feasible", "fits"
    )
    assert await recorder.flush(60)
    task.cancel()
    [event] = await events(client, namespace)
    assert event["regarding"]["name"] == name


async def test_the_same_again_is_a_series_and_another_note_another_event(recorder, client, namespace):
    for _ in range(3):
        recorder.emit(job(namespace), "Normal", "Feasible", "fits")
        await recorder.flush(60)
    recorder.emit(job(namespace), "Normal", "Feasible", "fits better")
    recorder.emit(job(namespace, "u2"), "Normal", "Feasible", "fits")
    assert await recorder.flush(60)
    written = await events(client, namespace)
    assert sorted((e["regarding"]["uid"], e["note"], e.get("series", {}).get("count", 1)) for e in written) == [
        ("u1", "fits", 3),
        ("u1", "fits better", 1),
        ("u2", "fits", 1),
    ]


async def test_a_burst_of_the_same_is_one_event_that_counts_all(recorder, client, namespace):
    for _ in range(10):
        recorder.emit(job(namespace), "Normal", "Feasible", "fits")
    assert await recorder.flush(60)
    [event] = await events(client, namespace)
    assert event["series"]["count"] == 10


async def test_an_object_that_talks_too_much_is_limited_and_the_others_are_not(recorder, client, namespace):
    for n in range(2 * BURST):
        recorder.emit(job(namespace), "Normal", "Feasible", f"note {n}")
    recorder.emit(job(namespace, "u2"), "Normal", "Feasible", "fits")
    assert await recorder.flush(60)
    written = [event["regarding"]["uid"] for event in await events(client, namespace)]
    assert (written.count("u1"), written.count("u2")) == (BURST, 1)


async def test_an_event_about_a_cluster_scoped_object_and_a_long_note_are_taken(recorder, client, namespace):
    pool = Regarding("punctual.dev/v1alpha1", "Pool", "", namespace, f"uid-{namespace}")
    recorder.emit(pool, "Normal", "Ready", "ü" * 5000)
    assert await recorder.flush(60)
    [event] = [e for e in await events(client, "default") if e["regarding"]["name"] == namespace]
    assert 1020 < len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ü…")


async def test_a_series_whose_event_is_gone_is_told_anew(recorder, client, namespace):
    recorder.emit(job(namespace), "Normal", "Feasible", "fits")
    await recorder.flush(60)
    [event] = await events(client, namespace)
    await client.delete(EVENTS.path(namespace=namespace, name=event["metadata"]["name"]))
    recorder.emit(job(namespace), "Normal", "Feasible", "fits")
    await recorder.flush(60)
    [event] = await events(client, namespace)
    assert event["series"]["count"] == 2


async def test_what_cannot_be_written_holds_up_nothing(recorder, client, namespace):
    recorder.emit(job("no-such-namespace"), "Normal", "Feasible", "fits")
    recorder.emit(job(namespace, "u2"), "Normal", "Feasible", "fits")
    assert await recorder.flush(60)
    assert len(await events(client, namespace)) == 1

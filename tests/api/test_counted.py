"""Iterations of pods as a real Prometheus has them."""

import itertools
import time

import pytest
from clocks import clock
from counters import NAME, Counters

from punctual.kube.kinds.rates.prometheus import Prometheus

QUERY = f'{NAME}{{namespace="a"}}'
PODS = {"p": "uid-p", "q": "uid-q"}


def labels(pod, namespace="a", **more):
    return {"pod": pod, "namespace": namespace, **more}


@pytest.fixture
async def counters(tmp_path):
    """Each scrape of a pod finds one more iteration, so that a count tells which scrape it is of."""
    series = [labels("p"), labels("q"), labels("p", "b"), labels("r", path="/x"), labels("r", path="/y"), {"pod": "s"}]
    counts = [itertools.count(1 + 1000 * n) for n in range(len(series))]
    async with Counters(tmp_path, [(s, c.__next__) for s, c in zip(series, counts, strict=True)]) as made:
        yield made


async def test_counts_have_the_times_of_their_scrapes(counters):
    one = Prometheus(counters.url, clock())
    found = {"uid-p": {}, "uid-q": {}}
    slowest = 0.0

    async def enough():
        nonlocal slowest
        begin = time.monotonic()
        answer = await one.count(QUERY, "a", PODS)
        if answer.counts:
            slowest = max(slowest, time.monotonic() - begin)
        for pod, done, at in answer.counts:
            found[pod].setdefault(done, at)
        return all(len(counts) >= 4 for counts in found.values())

    await counters.until(enough)
    for pod, uid in PODS.items():
        raw = await counters.raw(f'{NAME}{{namespace="a",pod="{pod}"}}')
        ahead = [raw[float(done)] - at for done, at in found[uid].items()]
        # the difference of the clocks is known to within the time of a query, and Prometheus says milliseconds
        assert max(ahead) - min(ahead) <= 2 * slowest + 0.002


TABLE = [
    (QUERY, {"p": "1", "r": "2"}, ["1"], "pod r has 2 series: add labels that leave one"),
    (f'{NAME}{{path!="/y"}}', {"p": "1", "r": "2"}, ["1", "2"], ""),
    (f'{NAME}{{namespace="b"}}', {"p": "1"}, [], "no series has pod=p and the TargetRate's namespace"),
    (NAME, {"s": "1"}, [], "no series has pod=s, and some (1) lack namespace or pod"),
    ("nothing_total", {"p": "1"}, [], "see whether Prometheus scrapes the pod"),
    (f"{NAME}{{namespace=}}", {"p": "1"}, [], "spec.iterations.query: Prometheus says"),
]


async def test_what_is_wrong_is_said_by_name(counters):
    one = Prometheus(counters.url, clock())

    async def scraped():
        counts = [await one.count(f'{NAME}{{path="{path}"}}', "a", {"r": "r"}) for path in ("/x", "/y")]
        counts.append(await one.count(f'{NAME}{{pod=~"p|q"}}', "a", PODS))
        nameless = await one.count(f'{NAME}{{pod="s"}}', "a", {"s": "s"})
        return not any(found.flaw for found in counts) and "some (1) lack" in nameless.flaw

    await counters.until(scraped)
    for query, pods, counted, says in TABLE:
        found = await one.count(query, "a", pods)
        assert [count.pod for count in found.counts] == counted, query
        assert says in found.flaw
        assert bool(found.flaw) is bool(says)

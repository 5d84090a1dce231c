"""Iterations of pods from Prometheus: one query for the counts and for the times at which they were scraped.

A tenant writes the query, the cluster's admin the address: a tenant cannot make the operator call other places. The
query is a selector (`punctual.kube.api.fields.Series`), and only series of the TargetRate's own namespace count.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from punctual.kube.api.fields import MAX_UNITS
from punctual.rates.model import ScrapedCount
from punctual.runtime.clock import ServerClock

TIMEOUT: Final = 5.0
"""Seconds for an answer."""
LARGEST: Final = 2**21
"""Bytes of an answer: those of about a thousand pods."""
AT_ONCE: Final = 8
"""Queries of all TargetRates that may run at the same time."""
FIELD: Final = "spec.iterations.query"
TIME: Final = "punctual_time"
"""The label by which times are told from counts."""
NO_URL: Final = "the operator knows no Prometheus: set prometheus.url of the chart, or leave spec.iterations out"


@dataclass(frozen=True, slots=True)
class PrometheusAnswer:
    """The counts of pods (uid), and why a pod has none. Empty ``flaw``: all have one."""

    counts: tuple[ScrapedCount, ...] = ()
    flaw: str = ""


@dataclass(slots=True)
class Series:
    """The series of a namespace, by the pod's name: values, and the times at which they were scraped, s since 1970."""

    values: dict[str, list[float]] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    now: float | None = None
    """When Prometheus looked. None: there are no series at all."""
    unnamed: int = 0
    """Series without a label `namespace` or `pod`."""


def check_url(url: str) -> str:
    """Return the address without a trailing slash; ValueError if it is none that can be asked. Empty: there is none."""
    parts = urlsplit(url)
    plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    if url and not (plain and parts.port != 0 and not parts.query and not parts.fragment):
        raise ValueError(f"{url!r} is no address such as http://prometheus.monitoring:9090")
    return url.rstrip("/")


class Prometheus:
    """The Prometheus of the cluster. ``url``: its address, as `check_url` returns it; empty: there is none.

    It is asked without a login, and never followed to another address.
    """

    def __init__(self, url: str, clock: ServerClock) -> None:
        self._url = url
        self._clock = clock
        self._free = asyncio.Semaphore(AT_ONCE)
        self._ahead: float | None = None  # its clock less ours

    async def count(self, query: str, namespace: str, pods: Mapping[str, str]) -> PrometheusAnswer:
        """Return the iterations of pods of a namespace (uid by name). Never raises for what Prometheus does."""
        if not self._url:
            return PrometheusAnswer(flaw=NO_URL)
        if not pods:
            return PrometheusAnswer()
        try:
            async with self._free:
                sent = self._clock.monotonic()
                status, body = await self._ask(query)
                received = self._clock.monotonic()
            series = read(status, body, namespace)
        except ValueError as error:
            return PrometheusAnswer(flaw=str(error))
        if series.now is not None:
            self._compare(series.now, sent, received)
        return answer(series, pods, self._ahead or 0.0)

    def _compare(self, now: float, sent: float, received: float) -> None:
        """Compare its clock with ours: it looked after the query was sent, and before the answer came.

        The difference changes only as far as an answer tells otherwise. So slow answers move no time, and it follows if
        its clock is set.
        """
        ahead = now - sent if self._ahead is None else self._ahead
        self._ahead = min(max(ahead, now - received), now - sent)

    async def _ask(self, query: str) -> tuple[int, bytes]:
        """Return status and body of the answer. A ValueError says why there is none."""
        asked = f'label_replace(timestamp({query}), "{TIME}", "1", "", "") or {query}'
        params = {"query": asked, "timeout": f"{TIMEOUT:g}s"}
        body = bytearray()
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=TIMEOUT),
                    auto_decompress=False,  # a few bytes could become many
                    headers={"Accept-Encoding": "identity"},
                ) as session,
                session.get(f"{self._url}/api/v1/query", params=params, allow_redirects=False) as response,
            ):
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > LARGEST:
                        raise ValueError(f"{FIELD}: its answer has over {LARGEST} bytes: select the pods' series only")
                return response.status, bytes(body)
        except TimeoutError as error:
            raise ValueError(f"prometheus.url of the chart gives no answer in {TIMEOUT:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ValueError(f"prometheus.url of the chart cannot be asked: {type(error).__name__}") from error


def read(status: int, body: bytes, namespace: str) -> Series:
    """Return the series of a namespace in an answer. A ValueError says what is wrong with it, and what to do."""
    said = ""
    series = Series()
    try:
        found = orjson.loads(body)
        if found["status"] == "error":
            said = f"{FIELD}: Prometheus says {str(found['error'])[:200]!r}"
        for sample in [] if said else found["data"]["result"]:
            now, value = map(float, sample["value"])
            _take(series, sample["metric"], now, value, namespace)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"prometheus.url of the chart answers with status {status} and not as Prometheus does"
        raise ValueError(text) from error
    if said:
        raise ValueError(said)
    return series


def _take(series: Series, labels: Mapping[str, str], now: float, value: float, namespace: str) -> None:
    if not math.isfinite(now):
        raise ValueError(now)
    series.now = now
    pod, of = labels.get("pod"), labels.get("namespace")
    if not (pod and of):
        series.unnamed += TIME not in labels
    elif of == namespace:
        (series.times if TIME in labels else series.values).setdefault(pod, []).append(value)


def answer(series: Series, pods: Mapping[str, str], ahead: float = 0.0) -> PrometheusAnswer:
    """Return the counts of pods (uid by name). ``ahead``: the clock of Prometheus less that of the counts."""
    counts: list[ScrapedCount] = []
    flaws: list[str] = []
    for name, uid in pods.items():
        values, times = series.values.get(name, []), series.times.get(name, [])
        if not values:
            flaws.append(_nothing(name, series.unnamed))
        elif len(values) > 1 or len(times) != 1:
            flaws.append(f"{FIELD}: pod {name} has {len(values)} series: add labels that leave one for each pod")
        elif not 0.0 <= values[0] <= MAX_UNITS:  # nor is it NaN
            flaws.append(f"{FIELD}: pod {name} has the value {values[0]:g}: iterations are from 0 to {MAX_UNITS:.0e}")
        elif not math.isfinite(times[0]):
            flaws.append(f"{FIELD}: pod {name} was scraped at no time")
        else:
            counts.append(ScrapedCount(uid, int(values[0]), times[0] - ahead))
    more = f" (and {len(flaws) - 1} more pods)" if len(flaws) > 1 else ""
    return PrometheusAnswer(tuple(counts), flaws[0] + more if flaws else "")


def _nothing(name: str, unnamed: int) -> str:
    if unnamed:
        return f"{FIELD}: no series has pod={name}, and some ({unnamed}) lack namespace or pod: each needs both"
    return f"{FIELD}: no series has pod={name} and the TargetRate's namespace: see whether Prometheus scrapes the pod"

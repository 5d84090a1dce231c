"""The points of the experiments as files, pictures and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from statistics import fmean, median

from lib.testbed import ROOT, Json

from experiments_lib import aligned, draw
from experiments_lib.ground import Ground
from punctual.errors import PunctualError

PAGE = ROOT / "docs/experiments.md"
FOLDER = ROOT / "docs/experiments"
BEGIN, END = "<!-- begin {}: hack/experiments writes this -->", "<!-- end {} -->"
FEW = "–"


def keep(name: str, points: Json, ground: Ground) -> None:
    """Store the points of an experiment, with what the programs cost and the commit."""
    whole = {**points, "commit": ground.commit, "costs": {key: asdict(cost) for key, cost in ground.costs.items()}}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(whole) + "\n", encoding="utf-8")


def kept(name: str) -> Json:
    """Return the points of an experiment that are stored; none if there are none."""
    points = FOLDER / f"{name}.json"
    return json.loads(points.read_text(encoding="utf-8")) if points.exists() else {}


def write() -> None:
    """Draw pictures, and write tables between their marks, for all points that there are."""
    text = PAGE.read_text(encoding="utf-8")
    for name, (table, picture) in PARTS.items():
        if not (found := kept(name)):
            continue
        picture(found, FOLDER / f"{name}.svg")
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise PunctualError(f"{PAGE.name} has no place for the table: the lines {begin!r} and {end!r} are missing")
        text = "\n".join([f"{before}{begin}", "", *table(found), "", f"{end}{after}"])
    PAGE.write_text(text, encoding="utf-8")


def steps(found: Json) -> Iterator[str]:
    """Yield the table of the open loop."""
    yield "| program | limited by | period | delay of CPU | delay of units | noise of CPU | noise of units | units/s |"
    yield "|---|---|---|---|---|---|---|---|"
    for program, periods in found["programs"].items():
        for period, one in periods.items():
            rates = f"{one['units_low']['median']:.3g} → {one['units_high']['median']:.3g}"
            yield (
                f"| {program} | {BOUND[program]} | {period} ms | {_seconds(one['delay_cpu'])} | "
                f"{_seconds(one['delay_units'])} | {_percent(one['noise_cpu'])} | {_percent(one['noise_units'])} | "
                f"{rates} |"
            )
    yield ""
    yield f"`hack/experiments steps`, at {found['commit']}. {_costs(found)}"


def response(found: Json) -> Iterator[str]:
    """Yield the table of the closed loop."""
    yield "| program | control | first time | its second half | least rate | back after | not back within the time |"
    yield "|---|---|---|---|---|---|---|"
    until = found["halved"]
    for program, controls in found["programs"].items():
        for control, one in controls.items():
            count = one["depth"]["count"]
            yield (
                f"| {program} | {control} | {_mean(one, 0.0, until):.0%} | {_mean(one, until / 2, until):.0%} | "
                f"{_percent(one['depth'])} | {_seconds(one['seconds'], digits=1)} | {one['not_back']} of {count} |"
            )
    yield ""
    yield f"`hack/experiments response`, at {found['commit']}."


def delay(found: Json) -> Iterator[str]:
    """Yield the sentence about the delay from an edit to the cgroup."""
    one = found["delay"]
    yield (
        f"{one['count']} changes ({found['edits']} edits, {found['chunks']} chunks): median {one['median']:.2f} s, "
        f"least {one['least']:.2f} s, most {one['most']:.2f} s. `hack/experiments delay`, at {found['commit']}."
    )


def rate(found: Json) -> Iterator[str]:
    """Yield the table of programs that are held at rates."""
    yield "| program | target | settled after | rates of 4 s from then on | outside ε |"
    yield "|---|---|---|---|---|"
    for program, one in found["programs"].items():
        for part, what in zip(one["parts"], [*(len(one["parts"]) - 1) * [""], ", a stranger on a node"], strict=True):
            settled = FEW if part["settled"] is None else f"{part['settled']:.0f} s"
            rates = FEW if part["rates"] is None else _percent(part["rates"], digits=1)
            yield (
                f"| {program} | {part['target']:.0%}{what} | {settled} | {rates} | {part['outside']} of {part['of']} |"
            )
    yield ""
    alone = ", ".join(f"{program} {one['alone']:.1f} iterations a second" for program, one in found["programs"].items())
    yield f"Alone: {alone}. `hack/experiments rate`, at {found['commit']}."


def disturbed(found: Json) -> Iterator[str]:
    """Yield the table of many jobs."""
    yield "| progressControl | admitted | refused | in time | | mean lateness of late jobs | most | not finished |"
    yield "|---|---|---|---|---|---|---|---|"
    for control, one in found["pools"].items():
        mean, worst = (FEW if x is None else f"{x:.1%}" for x in (one["mean_lateness"], one["worst_lateness"]))
        yield (
            f"| {control} | {one['admitted']} | {one['refused']} | {one['met']} | {one['ratio']:.1%} | {mean} | "
            f"{worst} | {one['unfinished']} |"
        )
    kinds, cpu = [one["kind"] for one in found["disturbances"]], found["cpu_seconds"]
    yield ""
    yield (
        f"{found['jobs']} jobs of {cpu:g} CPU seconds for each pool, {found['processors']['None']} "
        f"processors of 0.1 CPU, headroom {found['headroom']}, {found['seconds']} s; half the CPU "
        f"{kinds.count('halved')} times, a stranger {kinds.count('stranger')} times. "
        f"`hack/experiments disturbed --jobs {found['jobs']} --cpu-seconds {cpu:g} --seed {found['seed']}`, "
        f"at {found['commit']}."
    )


def guests(found: Json) -> Iterator[str]:
    """Yield the table of a node's own work beside guests, and what guests used."""
    yield "| own work | request | alone | with guests | ratio | alone over alone | guests use of what is left |"
    yield "|---|---|---|---|---|---|---|"
    for request, works in found["requests"].items():
        for work, one in works.items():
            values = (f"{1000 * one[key]['median']:.4g} ms" for key in ("alone", "guests"))
            noise = FEW if one["noise"] is None else _limits(one["noise"])
            used = f"{one['harvest']:.1%} (median run {_harvest(one):.1%})" if work == "web" else FEW
            yield f"| {WORK[work]} | {request} | {' | '.join(values)} | {_limits(one['ratio'])} | {noise} | {used} |"
    yield ""
    for request, works in found["requests"].items():
        if pooled := works["web"].get("pooled"):
            twice = f"; alone over alone: {_limits(pooled['noise'])}" if pooled["noise"] else ""
            yield (
                f"The 99th percentile of all answers with guests, over that of all answers alone, with a request of "
                f"{request}: {_limits(pooled['ratio'])}{twice}. {pooled['answers']:,} answers."
            )
            yield ""
    yield "From the beginning of the benchmark until the cap of guests is at its floor:"
    yield ""
    yield "| request | median | worst | bursts | not at the floor |"
    yield "|---|---|---|---|---|"
    for request, works in found["requests"].items():
        one, missing = works["benchmark"]["floor"], works["benchmark"]["not_at_floor"]
        times = f"{FEW} | {FEW} | 0" if one is None else f"{one['median']:.2f} s | {one['most']:.2f} s | {one['count']}"
        yield f"| {request} | {times} | {missing} |"
    yield ""
    if found["name"] == "guests-memory":
        alone, beside = (
            fmean(one["available"][key]["median"] for works in found["requests"].values() for one in works.values())
            for key in ("alone", "guests")
        )
        yield (
            f"Of the node's memory, {alone:.0%} is available alone and {beside:.0%} with guests. "
            f"The kernel killed {found['killed']} programs for lack of memory."
        )
        yield ""
    yield f"`hack/experiments {found['name']} --pairs {found['pairs']}`, at {found['commit']}."


def moves(found: Json) -> Iterator[str]:
    """Yield the table of ranges that go to another node."""
    yield "| the node | moves | until the decision | worst | from there until it runs elsewhere | worst |"
    yield "|---|---|---|---|---|---|"
    for cause, what in (("cordon", "is cordoned"), ("burst", "gets work of its own")):
        one = found.get(cause)
        if one and one["runs"] is not None:
            times = (f"{one[key]['median']:.2f} s | {one[key]['most']:.2f} s" for key in ("decided", "from_decision"))
            tried = one["runs"]["count"] + one["stayed"]
            yield f"| {what} | {one['runs']['count']} of {tried} | {' | '.join(times)} |"
    yield ""
    counts = {
        f"--{cause}s": len(found[cause]["all"]) + found[cause]["stayed"]
        for cause in ("cordon", "burst")
        if cause in found
    }
    words = " ".join(f"{word} {count}" for word, count in counts.items())
    yield f"`hack/experiments moves {words}`, at {found['commit']}."


def coscheduling(found: Json) -> Iterator[str]:
    """Yield the tables of aligned slices, and what was to be shown."""
    yield "![Rates of all arms, for each program](experiments/coscheduling.svg)"
    yield ""
    if any("slices" in one for one in found["programs"].values()):
        yield "![When both ranks run, without and with alignment](experiments/coscheduling-slices.svg)"
        yield ""
    yield "| program | aligned | uncoordinated | apart | none | ÷ uncoordinated | ÷ apart | ÷ none |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in found["programs"].items():
        rates = " | ".join(f"{_of(one, arm, 'rate'):.3f}" for arm in draw.ARMS)
        ratios = " | ".join(_quartiles(ratio) for ratio in one["ratios"].values())
        yield f"| {name} | {rates} | {ratios} |"
    yield ""
    yield "CPU of a node's own work and of its agent, and of all else on the machine, cores, medians:"
    yield ""
    yield "| program | own work: aligned | uncoordinated | apart | none | agent: aligned | uncoordinated | all else |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in found["programs"].items():
        local = " | ".join(f"{_of(one, arm, 'local'):.3f}" for arm in draw.ARMS)
        agent = " | ".join(f"{_of(one, arm, 'agent'):.4f}" for arm in ("aligned", "uncoordinated"))
        other = [block[arm]["other"] for block in one["runs"] for arm in draw.ARMS]
        yield f"| {name} | {local} | {agent} | {median(other):.2f} ({min(other):.2f} to {max(other):.2f}) |"
    yield ""
    yield "| | what | measured | accepted | |"
    yield "|---|---|---|---|---|"
    for number, what, value, least, most, digits in aligned.figures(found):
        bounds = FEW.join("" if bound is None else f"{bound:g}" for bound in (least, most))
        holds = (least is None or value >= least) and (most is None or value <= most)
        yield f"| {number} | {what} | {value:.{digits}f} | {bounds} | {'yes' if holds else 'no'} |"
    yield ""
    short = " --short" if found["short"] else f" --blocks {found['blocks']}"
    yield f"`hack/experiments coscheduling{short}`, at {found['commit']}."


def _of(one: Json, arm: str, what: str) -> float:
    return float(median(block[arm][what] for block in one["runs"]))


def _quartiles(ratio: Json) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _harvest(one: Json) -> float:
    """Return the part of what was left that guests used in the median run with them."""
    return float(median(used / left for running, _, used, left, *_ in one["runs"] if running))


def _limits(one: Json) -> str:
    return f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})"


def _mean(one: Json, begin: float, end: float) -> float:
    """Return the urgent chunk's mean rate between two times, relative to that before the first disturbance."""
    track = one["tracks"]["urgent"]
    pairs = list(zip(track["time"], track["units_per_second"], strict=True))
    usual = fmean(rate for at, rate in pairs if at < -0.5)  # a second that ends before
    return fmean(rate for at, rate in pairs if begin <= at < end) / usual


def _costs(found: Json) -> str:
    told = (
        f"{name} {1000 * one['unit']:.1f} ms of CPU in {1000 * one['alone']:.1f} ms"
        for name, one in found["costs"].items()
    )
    return f"A unit takes, alone on an idle core: {', '.join(told)}."


def _seconds(spread: Json | None, *, digits: int = 2) -> str:
    if spread is None:
        return FEW
    return f"{spread['median']:.{digits}f} s ({spread['least']:.{digits}f} to {spread['most']:.{digits}f})"


def _percent(spread: Json, *, digits: int = 0) -> str:
    return f"{spread['median']:.{digits}%} ({spread['least']:.{digits}%} to {spread['most']:.{digits}%})"


WORK = {"web": "web server, p99", "benchmark": "benchmark of the CPU"}
BOUND = {"blastp": "CPU", "pagerank": "memory", "sqlite": "disk"}
PARTS: dict[str, tuple[Callable[[Json], Iterator[str]], Callable[..., None]]] = {
    "steps": (steps, draw.steps),
    "response": (response, draw.response),
    "delay": (delay, draw.nothing),
    "rate": (rate, draw.rate),
    "disturbed": (disturbed, draw.disturbed),
    "guests": (guests, draw.guests),
    "guests-memory": (guests, draw.nothing),
    "guests-disk": (guests, draw.nothing),
    "moves": (moves, draw.nothing),
    "coscheduling": (coscheduling, draw.coscheduling),
}
"""By experiment: its table and its picture."""

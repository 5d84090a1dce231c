"""What a `proxy.Proxy` may do to a call: each function makes a fault."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime

from proxy import JSON, Answer, HangUp, do


def delay(seconds):
    """Let it wait before the server hears of it."""

    async def fault(_call, forward):
        await asyncio.sleep(seconds)
        return await forward()

    return fault


def answer(status, message="as the test wants it", *, reason="", retry_after=None):
    """Answer in the server's place, which hears nothing."""
    headers = JSON if retry_after is None else {**JSON, "Retry-After": str(retry_after)}

    async def fault(_call, _forward):
        return Answer(status, headers, json.dumps(_status(status, message) | {"reason": reason}).encode())

    return fault


def refuse(act=lambda: None):
    """Hang up before the server hears of it, once ``act`` is done."""

    async def fault(_call, _forward):
        await do(act)
        raise HangUp

    return fault


def lose(act=lambda: None):
    """Let the server do it, and hang up in place of its answer, once ``act`` is done."""

    async def fault(_call, forward):
        await forward()
        await do(act)
        raise HangUp

    return fault


def afterwards(act):
    """Let it be done and answered, then do something."""

    async def fault(_call, forward):
        return replace(await forward(), then=act)

    return fault


def dated(ahead):
    """Tell the time with a clock that is so many seconds ahead."""

    async def fault(_call, forward):
        found = await forward()
        told = parsedate_to_datetime(found.headers["Date"]) + timedelta(seconds=ahead)
        return replace(found, headers={**found.headers, "Date": format_datetime(told, usegmt=True)})

    return fault


def stale():
    """Answer each whole list with what the first of its kind was answered, as a server would that has fallen behind.

    What is read page by page is read consistently. If that fell behind, the store would have been set back.
    """
    first = {}

    async def fault(call, forward):
        if "limit" in call.url.query:
            return await forward()
        key = call.url.path, call.url.query_string
        if key not in first:
            first[key] = await forward()
        return first[key]

    return fault


def watched(change):
    """Send on the events of a watch as ``change(events)``, a generator of lines, makes them."""

    async def fault(_call, forward):
        found = await forward()
        return found if found.events is None else replace(found, events=change(found.events))

    return fault


def cut(events, *, clean=False):
    """End a watch in the middle of the event behind so many; ``clean``: as if that were its end in order."""

    async def change(lines):
        left = events
        async for line in lines:
            if left == 0:
                yield line[: len(line) // 2]
                if clean:
                    return
                raise HangUp
            left -= 1
            yield line

    return watched(change)


def twice():
    """Send each event two times."""

    async def change(lines):
        async for line in lines:
            yield line
            yield line

    return watched(change)


def silent(events=0):
    """Say nothing behind so many events, and do not end."""

    async def change(lines):
        left = events
        async for line in lines:
            if left == 0:
                await asyncio.Event().wait()
            left -= 1
            yield line

    return watched(change)


def tell(status, message="as the test wants it", *, events=0):
    """End a watch, behind so many events, by one that says what is wrong."""

    async def change(lines):
        left = events
        while left and (line := await anext(lines, None)):
            yield line
            left -= 1
        yield json.dumps({"type": "ERROR", "object": _status(status, message)}).encode() + b"\n"

    return watched(change)


def _status(code, message):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}

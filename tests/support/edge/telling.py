"""The story of a play in plain sentences: each write, with its source and its time."""

import orjson

VERBS = {"POST": "creates", "PUT": "writes", "PATCH": "patches", "DELETE": "deletes"}
OUTCOMES = {404: "it is not there", 409: "conflict", 410: "too old", 422: "refused", 429: "too busy", 403: "forbidden"}


def sentences(lines):
    """Yield a sentence for each line of a story, but for what repeats all the time."""
    for at, source, what, *more in lines:
        if what not in VERBS:
            yield f"{at:8.3f}  {source}: {' '.join(map(str, (what, *more)))}"
            continue
        path, body, code = more
        if "/leases/" in path and code == 200:
            continue
        yield f"{at:8.3f}  {source} {VERBS[what]} {_object(path, body)}{_said(what, body)}{_outcome(code)}"


def _object(path, body):
    parts = path.split("/namespaces/")[-1].split("/") if "/namespaces/" in path else path.split("/")[-2:]
    named = "/".join(part for part in parts[1:] or parts)
    told = _read(body)
    if isinstance(told, dict) and (name := (told.get("metadata") or {}).get("name")) and name not in named:
        named += f"/{name}"
    return named


def _read(body):
    return orjson.loads(body) if isinstance(body, bytes) and body else body


def _said(verb, body):
    told = _read(body)
    if not isinstance(told, dict):
        return f" ({orjson.dumps(told).decode()[:120]})" if told else ""
    if "reason" in told and "note" in told:
        return f": {told['reason']}: {told['note']}"
    status = told.get("status")
    if status and verb != "POST":
        return f": {_status(status)}"
    if "spec" in told and verb == "PATCH":
        return f": {orjson.dumps(told['spec']).decode()[:120]}"
    return ""


def _status(status):
    words = [f"epoch {status.get('epoch')}"]
    if "state" in status:
        words.append(f"{status['state']} ({status.get('reason', '')})")
    if "completed" in status:
        words.append("completed " + (" ".join(f"{r['begin']}-{r['end']}" for r in status["completed"]) or "nothing"))
    if status.get("chunks"):
        words.append("chunks " + " ".join(f"{c['begin']}-{c['end']}" for c in status["chunks"]))
    return ", ".join(words)


def _outcome(code):
    return "" if code < 300 else f" → {code}, {OUTCOMES.get(code, 'refused')}"

"""What pods request, and what a processor's worth of it is. Amounts by resource: cores, bytes, numbers."""

UNITS = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6}


def amount(quantity):
    text = str(quantity)
    unit = next((unit for unit in UNITS if text.endswith(unit)), "")
    return round(float(text.removesuffix(unit)) * UNITS.get(unit, 1), 6)


def of(container):
    """Return what a container requests: a limit without a request is one."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(quantity) for name, quantity in asked.items()}


def add(*parts):
    return {name: round(sum(p.get(name, 0) for p in parts), 6) for part in parts for name in part}


def most(*parts):
    return {name: max(p.get(name, 0) for p in parts) for part in parts for name in part}


def is_sidecar(container):
    return container.get("restartPolicy") == "Always"


def requests(spec):
    """Return what a pod requests: the larger of its start and its run, and its overhead."""
    stay, start = {}, {}
    for init in spec.get("initContainers") or ():
        start = most(start, add(stay, of(init)))
        if is_sidecar(init):
            stay = add(stay, of(init))
    run = add(stay, *(of(container) for container in spec["containers"]))
    return add(most(run, start), overhead(spec))


def beside(spec, work):
    """Return what a pod requests beside its container ``work`` while that runs."""
    others = (container for container in spec["containers"] if container["name"] != work)
    sidecars = (init for init in spec.get("initContainers") or () if is_sidecar(init))
    return add(*(of(container) for container in others), *(of(init) for init in sidecars), overhead(spec))


def overhead(spec):
    return {name: amount(quantity) for name, quantity in (spec.get("overhead") or {}).items()}


def fits(wanted, there):
    return all(there.get(name, 0) >= needed - 1e-9 for name, needed in wanted.items() if needed > 0)

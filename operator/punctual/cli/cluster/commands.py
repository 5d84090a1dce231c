"""The commands that ask a cluster: ``why``, ``top``, ``pools``, ``submit``, ``cancel``, ``page``.

Like :mod:`punctual.cli`, this module imports nothing slow: each command imports what it needs.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from punctual.cli import completion, program
from punctual.labels import JOB_UID_LABEL

if TYPE_CHECKING:
    from punctual.cli.cluster.why import Explanation

Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Default: that of kubectl's context.", autocompletion=completion.namespaces),
]
Context = Annotated[
    str | None,
    typer.Option(help="Context of the kubeconfig, as for kubectl.", autocompletion=completion.contexts),
]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Show jobs of all namespaces.")]
Output = Annotated[Literal["table", "wide", "json"], typer.Option("-o", "--output")]


def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="JOB|POD|tr/NAME",
            help="A job, a chunk's pod, or a TargetRate.",
            autocompletion=completion.subjects,
        ),
    ],
    *,
    namespace: Namespace = None,
    context: Context = None,
    output: Annotated[Literal["text", "json"], typer.Option("-o", "--output")] = "text",
) -> None:
    """Explain why a job is refused, late or not started, why a pod runs where it does, or how a TargetRate is kept.

    Of a guest's pod, it tells the last decision: whether the pod stays on a busy node, moves or leaves.

    The explanation is in the operator's own numbers. Without the right to read all namespaces, it leaves out what other
    jobs do, and says so.
    """
    import time  # noqa: PLC0415

    from punctual.cli.cluster_state import ClusterState  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415
    from punctual.gc_pause import uncollected  # noqa: PLC0415

    kubectl = Kubectl(context)
    where = ["--namespace", namespace] if namespace else []
    kind, _, rate = name.partition("/")
    if rate and kind in completion.RATES:
        rates = kubectl.begin("get", "targetrates.punctual.dev", "-o", "json", *where)
        from punctual.cli.cluster.why import explain_rate  # noqa: PLC0415

        _explained(explain_rate(rate, rates, now=time.time()), output)
        return
    pods = kubectl.begin("get", "pods", "-l", JOB_UID_LABEL, "-o", "json", *where)
    events = kubectl.begin("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json", *where)
    try:
        # kubectl reads while Python imports the models and the core
        with ClusterState(kubectl, namespace) as state, uncollected():
            from punctual.cli.cluster.why import explain  # noqa: PLC0415

            found = explain(name, state=state, pods=pods, events=events, now=time.time())
    finally:
        pods.drop()
        events.drop()
    _explained(found, output)


def _explained(found: "Explanation", output: str) -> None:
    if output == "json":
        print(json.dumps(found.document()))
        return
    from rich.console import Console  # noqa: PLC0415

    from punctual.cli.cluster.why import show  # noqa: PLC0415

    show(found, Console())


def top(
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table and exit.")] = False,
    output: Output = "table",
) -> None:
    """Show pools, target rates and jobs live, with the last minutes as small curves.

    Without a terminal, and with -o json, it prints the present once and exits.
    """
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415

    kubectl = Kubectl(context)
    if once or output == "json" or not sys.stdout.isatty():
        where = ["--all-namespaces"] if everywhere else ["--namespace", namespace] if namespace else []
        # kubectl reads while Python imports rich
        found = {
            "Pool": kubectl.begin("get", "pools.punctual.dev", "-o", "json"),
            "TargetRate": kubectl.begin("get", "targetrates.punctual.dev", "-o", "json", *where),
            "DivisibleJob": kubectl.begin("get", "divisiblejobs.punctual.dev", "-o", "json", *where),
        }
        from punctual.cli.cluster.top import once as print_once  # noqa: PLC0415

        print_once(found, everywhere=everywhere, output=output)
        return
    from punctual.cli.cluster.top import top as show  # noqa: PLC0415

    show(kubectl, None if everywhere else namespace or kubectl.namespace(), wide=output == "wide")


def pools(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="POOL", help="Show only these.", autocompletion=completion.pools)
    ] = None,
    *,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Show the pools: how many processors run, are promised and are free, and until when.

    Without the right to read jobs of all namespaces, it shows what the pools' statuses say.
    """
    from punctual.cli.cluster_state import ClusterState  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415
    from punctual.gc_pause import uncollected  # noqa: PLC0415

    with ClusterState(Kubectl(context), "default") as state, uncollected():
        from punctual.cli.cluster.pools import pools as show  # noqa: PLC0415

        show(names or (), state, output=output)


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Manifest of jobs; -: standard input.")],
    *,
    namespace: Namespace = None,
    context: Context = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the answers.")] = 60.0,
    accept_offer: Annotated[
        bool, typer.Option("--accept-offer", help="If the deadline is refused, take the one that is offered.")
    ] = False,
    output: Output = "table",
) -> None:
    """Apply a file, and wait until its jobs are promised or refused.

    Exits with status 0 if all are promised, 1 if one is refused, 2 if one has no answer within the timeout.
    """
    from punctual.cli.cluster import writes  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415

    done = writes.submit(file, kubectl=Kubectl(context), namespace=namespace, timeout=timeout, accept=accept_offer)
    from punctual.cli.cluster import answers  # noqa: PLC0415  rich

    answers.submitted(list(done.jobs.values()), timeout=timeout, output=output)
    sys.exit(writes.status(done.jobs.values()))


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="Delete these.", autocompletion=completion.jobs)],
    *,
    namespace: Namespace = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Delete jobs, with their pods. Their processors are free for others at once.

    It asks nothing. Exits with status 1 if one of the jobs does not exist; the others are deleted.
    """
    from punctual.cli.cluster import writes  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415

    done = writes.Cancelled(jobs, Kubectl(context), namespace)
    from punctual.cli.cluster import answers  # noqa: PLC0415  rich

    answers.cancelled(done.jobs, output=output)
    for name, words in done.missing.items():
        print(f"{program.name()}: there is no job {name}{words}", file=sys.stderr)
    sys.exit(1 if done.missing else 0)


def page(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0: any that is free.")] = 8090,
    context: Context = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Show the operator's page: pools, jobs, deadlines, live.

    It forwards a local port to the operator that leads, with your right to forward ports of its pod, until Ctrl-C.
    """
    from punctual.cli.cluster.page import show  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415

    show(Kubectl(context), port=port, browser=browser)


COMMANDS = why, top, pools, submit, cancel, page

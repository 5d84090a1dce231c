"""The command line: ``punctual …``, also as a kubectl plugin.

A command is a function of a module beside this one, registered here by name. Nothing heavy is imported up here (kopf
takes 0.4 s, kubernetes 0.2 s): each command imports what it needs, so that ``--help`` and completion answer at once.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from punctual import __version__
from punctual.errors import PunctualError

app = typer.Typer(
    name="punctual",
    help="Deadlines that a Kubernetes cluster keeps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
benches = typer.Typer(no_args_is_help=True, help="Measure the core on this machine.")
app.add_typer(benches, name="bench")
simulations = typer.Typer(no_args_is_help=True, help="The operator's own code under a virtual clock.")
app.add_typer(simulations, name="simulate")

Restart = Literal["redo", "resume"]
Start = Literal["ready", "together"]
Network = Literal["one-port", "concurrent"]
LONGEST = 1e12
"""Seconds of an option: no simulation comes to an end at infinity."""


@app.callback()
def _punctual() -> None:
    """Keep `punctual COMMAND` even where there is one command only."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def crds(
    write: Annotated[Path | None, typer.Option(help="Write one file per kind into this folder.")] = None,
    *,
    docs: Annotated[bool, typer.Option("--docs", help="Print the API reference (Markdown) instead.")] = False,
) -> None:
    """Print the CustomResourceDefinitions as YAML: punctual crds | kubectl apply --server-side -f -"""  # noqa: D400  a command to copy
    from punctual.kube import crd  # noqa: PLC0415  pydantic and the models are heavy

    if write is not None:
        crd.write(write)
    else:
        print(crd.documentation() if docs else crd.all_yaml(), end="")


@app.command()
def watch(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Only these; ends when they have.")
    ] = None,
    *,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Default: kubectl's.")] = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig, as for kubectl.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write all that is seen here, for punctual timeline.")] = None,
) -> None:
    """Show jobs as they run: progress of every chunk, ETA, slack; through kubectl.

    With JOBs it ends when all of them have: status 0 if every deadline was kept.
    """
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415
    from punctual.cli.watch import watch as show  # noqa: PLC0415  rich is for those who look

    kubectl = Kubectl(context)
    where = None if everywhere else namespace or kubectl.namespace()
    sys.exit(show(jobs or (), kubectl=kubectl, namespace=where, record=record))


@app.command()
def timeline(
    record: Annotated[Path, typer.Argument(help="Written by punctual watch --record.")],
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Only these.")] = None,
    *,
    svg: Annotated[Path, typer.Option(help="The picture to write.")] = Path("timeline.svg"),
    title: Annotated[str, typer.Option(help="Its headline.")] = "",
) -> None:
    """Draw who ran where and when, with deadlines and what became of them."""
    from punctual.cli import record as recorded  # noqa: PLC0415
    from punctual.view import svg as picture  # noqa: PLC0415
    from punctual.view import timeline as timelines  # noqa: PLC0415

    drawn = picture.svg(timelines.timeline(recorded.read(record), jobs or ()), title=title)
    _write(svg, drawn)
    print(svg)


@app.command()
def plan(
    file: Annotated[str, typer.Option("-f", "--filename", help="The job's manifest, - for standard input.")],
    *,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Default: kubectl's.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig, as for kubectl.")] = None,
    pool_state: Annotated[
        Path | None,
        typer.Option(
            help="What kubectl get pools,divisiblejobs,profiles,reservations,namespaces -A "
            "-o json wrote: ask no cluster."
        ),
    ] = None,
    moment: Annotated[
        str | None,
        typer.Option("--at", help="When it asks (RFC 3339). Default: now, or when --pool-state was written."),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("-o", "--output")] = "table",
) -> None:
    """Say what admission would answer to a job, without applying it: plan, or refusal with its arithmetic.

    Status 0 if the deadline would be promised, 1 if not, 2 if that cannot be told.
    """
    from rich.console import Console  # noqa: PLC0415

    from punctual.cli import plan_screen  # noqa: PLC0415
    from punctual.cli.plan import plan as ask  # noqa: PLC0415  pydantic, the models and the core

    try:
        found = ask(file, namespace=namespace, context=context, pool_state=pool_state, moment=moment)
    except PunctualError as error:
        print(f"punctual: {error}", file=sys.stderr)
        sys.exit(2)
    for i, answer in enumerate(found):
        if output == "json":
            print(json.dumps(answer.document()))
            continue
        if i:
            print()
        plan_screen.show(answer, Console())
    sys.exit(0 if all(answer.promised for answer in found) else 1)


@benches.command()
def admission(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the decisions.")] = False,
) -> None:
    """Time decisions of admission, fast and exact, beside the papers' algorithms to the letter: some minutes."""
    from punctual.benchmarks import admission  # noqa: PLC0415  numpy and the core

    admission.show(admission.admission(quick=quick), as_json=json)


@simulations.command("jobs")
def simulate_jobs(
    trace: Annotated[str | None, typer.Argument(metavar="[TRACE]", help="JSON lines, - for standard input.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    horizon: Annotated[
        float | None, typer.Option(min=0.0, max=LONGEST, help="Leave out what arrives then or later, s.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the timeline into this file.")] = None,
    processors: Annotated[int, typer.Option(min=1, max=1_000_000)] = 16,
    chi: Annotated[float, typer.Option(min=1e-12, max=LONGEST, help="Seconds to compute a unit.")] = 100.0,
    tau: Annotated[float, typer.Option(min=0.0, max=LONGEST, help="Seconds to send a unit.")] = 1.0,
    theta_cm: Annotated[float, typer.Option(min=0.0, max=LONGEST, help="Seconds to set up a transfer.")] = 0.0,
    theta_cp: Annotated[float, typer.Option(min=0.0, max=LONGEST, help="Seconds to set up a computation.")] = 0.0,
    speeds: Annotated[Path | None, typer.Option(help="JSON list: per processor, a factor on chi.")] = None,
    headroom: Annotated[float, typer.Option(min=0.0, max=0.99)] = 0.0,
    margin: Annotated[float, typer.Option(min=0.0, max=LONGEST, help="Seconds kept free before deadlines.")] = 0.0,
    restart: Annotated[Restart, typer.Option(help="What a fault leaves of a chunk.")] = "redo",
    order: Annotated[Literal["EDF", "FIFO", "MWF"], typer.Option()] = "EDF",
    partition: Annotated[Literal["OPR", "EPR", "optimal", "equal"], typer.Option()] = "OPR",
    assign: Annotated[Literal["MN", "AN", "fewest", "all"], typer.Option()] = "MN",
    start: Annotated[Start, typer.Option(help="A job's processors: together, or each when it is free.")] = "ready",
    admission: Annotated[Literal["exact", "fast", "hybrid"], typer.Option()] = "exact",
    hybrid_threshold: Annotated[int, typer.Option(min=1, help="Jobs waiting from which on hybrid is fast.")] = 300,
    network: Annotated[Network, typer.Option()] = "one-port",
    miss_set_point: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="Let a controller hold this miss ratio.")
    ] = None,
    sample_period: Annotated[float, typer.Option(min=1e-6, help="Of that controller, s.")] = 100_000.0,
    bound: Annotated[float | None, typer.Option(min=1e-6, help="Let in by this utilization bound instead.")] = None,
    actual: Annotated[str, typer.Option(metavar="LOW,HIGH", help="Actual cost = estimate x uniform factor.")] = "1,1",
    offers: Annotated[bool, typer.Option(help="Search the earliest deadline for who is refused.")] = True,
    integer_units: Annotated[bool, typer.Option("--integer-units", help="Cut loads into whole units.")] = False,
    workload: Annotated[Literal["mamat"] | None, typer.Option(help="Draw jobs as the paper does.")] = None,
    system_load: Annotated[float, typer.Option(help="Of the workload.")] = 1.0,
    avg_load: Annotated[float, typer.Option(help="Of the workload: mean load, units.")] = 200.0,
    dc_ratio: Annotated[float, typer.Option(help="Of the workload: mean deadline over E(mean load, N).")] = 2.0,
    tasks: Annotated[int | None, typer.Option(min=1, help="Of the workload: how many jobs.")] = None,
) -> None:
    """Run divisible jobs through the operator's own Pool under a virtual clock."""
    from punctual.cli import simulate  # noqa: PLC0415  numpy and the core
    from punctual.scheduling.model.discipline import Discipline  # noqa: PLC0415
    from punctual.sim.gc_pause import uncollected  # noqa: PLC0415
    from punctual.sim.run import Options  # noqa: PLC0415
    from punctual.sim.trace import TraceError  # noqa: PLC0415
    from punctual.sim.workload import Workload  # noqa: PLC0415
    from punctual.theory.cost import Cost  # noqa: PLC0415

    try:
        cost = Cost(chi, tau, theta_cm, theta_cp)
        options = Options(
            processors=processors,
            cost=cost,
            speeds=simulate.speeds(speeds, processors) if speeds else None,
            discipline=Discipline(
                order=order,
                partition=simulate.PARTITIONS[partition],
                assign=simulate.ASSIGNMENTS[assign],
                network="OnePort" if network == "one-port" else "Concurrent",
                start="Together" if start == "together" else "Ready",
            ),
            admission=simulate.ADMISSIONS[admission],
            threshold=hybrid_threshold,
            bound=bound,
            miss_set_point=miss_set_point,
            sample_period=sample_period,
            headroom=headroom,
            margin=margin,
            restart="Redo" if restart == "redo" else "Resume",
            actual=simulate.factors(actual),
            offers=offers,
            integer_units=integer_units,
            seed=seed,
        )
        simulate.check(options)
        drawn = None
        if workload is not None:
            drawn = Workload(cost=cost, processors=processors, load=system_load, average=avg_load, dc_ratio=dc_ratio)
        lines = simulate.lines(trace, drawn, seed=seed, tasks=tasks, horizon=horizon, processors=processors)
    except (TraceError, simulate.MisusedError, ValueError) as error:
        print(f"punctual: {error}", file=sys.stderr)
        sys.exit(2)
    result = simulate.run(lines, options)
    if as_json:
        with uncollected():
            print(json.dumps(result.document()))
    else:
        from punctual.cli.simulate_screen import show  # noqa: PLC0415  tables are for those who look

        show(result, lines, options)
    if svg is not None:
        from punctual.cli.simulate_screen import draw  # noqa: PLC0415  and so are pictures

        _write(svg, draw(result, lines, options))


def _write(file: Path, text: str) -> None:
    """Write a file, all of it or nothing."""
    whole = not file.exists() or file.is_file()  # else a device or a pipe
    file = file.resolve() if whole else file
    beside = file.with_name(f".{file.name}.{os.getpid()}") if whole else file
    try:
        beside.write_text(text, encoding="utf-8")
        if whole:
            beside.replace(file)
    except OSError as error:
        if whole:
            beside.unlink(missing_ok=True)
        raise PunctualError(f"{file} cannot be written: {error.strerror}") from error


def main() -> None:
    """Run the command line; what cannot be done is one sentence and exit code 2."""
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except PunctualError as error:
        print(f"punctual: {error}", file=sys.stderr)
    except BrokenPipeError:  # who reads has seen enough
        _drop_output()
    except OSError as error:
        print(f"punctual: {error.filename or 'the output'} cannot be written: {error.strerror}", file=sys.stderr)
        _drop_output()
    sys.exit(2)


def _drop_output() -> None:
    """Give up on what is to be printed yet: the interpreter would fail on it at its end once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

"""The command line: ``punctual …``, or ``kubectl punctual …`` where its file has the name of kubectl's plugin.

Each command is a function of a module beside this one, registered here by name. This module imports nothing slow
(numpy, pydantic and rich take longer than all the rest): each command imports what it needs, so ``--help`` and
completion answer at once. For the same reason typer draws help and errors without rich.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from punctual import __version__
from punctual.cli import completion, program
from punctual.cli.cluster import commands
from punctual.cli.cluster.commands import Context, Namespace
from punctual.errors import PunctualError


class _Commands(TyperGroup):
    """The commands; their help has the name under which the program was started."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command."""
        found: Any = super().get_command(ctx, cmd_name)
        for part in (found, *found.params) if found is not None else ():
            if text := getattr(part, "help", None):
                part.help = program.spoken(text)
        return found


app = typer.Typer(
    name="punctual",
    cls=_Commands,
    add_completion=program.started_as() != program.PLUGIN,  # kubectl completes its plugins
    help="Deadlines that a Kubernetes cluster keeps.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
benches = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure the core on this machine.")
app.add_typer(benches, name="bench")
simulations = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Simulate jobs with the operator's own code."
)
app.add_typer(simulations, name="simulate")

Restart = Literal["redo", "resume"]
Start = Literal["ready", "together"]
Network = Literal["one-port", "concurrent"]
LONGEST = 1e12
"""Maximum seconds of an option: a simulation must end before infinity."""


def _print_version(asked: bool) -> None:  # noqa: FBT001  typer's signature
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _punctual(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


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
    """Print the CustomResourceDefinitions as YAML.

    To install them: punctual crds | kubectl apply --server-side -f -
    """
    from punctual.kube import crd  # noqa: PLC0415  pydantic and the models are heavy

    if write is not None:
        crd.write(write)
    else:
        print(crd.documentation() if docs else crd.all_yaml(), end="")


@app.command()
def watch(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB", help="Show only these, and exit when all have ended.", autocompletion=completion.jobs
        ),
    ] = None,
    *,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Show jobs of all namespaces.")] = False,
    context: Context = None,
    record: Annotated[Path | None, typer.Option(help="Record the run in this file, for punctual timeline.")] = None,
) -> None:
    """Show jobs as they run: progress of each chunk, ETA, slack.

    With JOBs it exits when all of them have ended: with status 0 if every deadline was met, else 1.
    """
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415
    from punctual.cli.watch import watch as show  # noqa: PLC0415  rich

    kubectl = Kubectl(context)
    where = None if everywhere else namespace or kubectl.namespace()
    sys.exit(show(jobs or (), kubectl=kubectl, namespace=where, record=record))


@app.command()
def timeline(
    record: Annotated[Path, typer.Argument(help="A file that punctual watch --record wrote.")],
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Draw only these.")] = None,
    *,
    svg: Annotated[Path, typer.Option(help="Write the picture into this file.")] = Path("timeline.svg"),
    title: Annotated[str, typer.Option(help="Headline of the picture.")] = "",
) -> None:
    """Draw a recorded run: chunks on processors, deadlines.

    The table beneath shows whether each deadline was met.
    """
    from punctual.cli import record as recorded  # noqa: PLC0415
    from punctual.view import svg as picture  # noqa: PLC0415
    from punctual.view import timeline as timelines  # noqa: PLC0415

    drawn = picture.svg(timelines.timeline(recorded.read(record), jobs or ()), title=title)
    _write(svg, drawn)
    print(svg)


@app.command()
def plan(
    manifest: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Manifest of the job; -: standard input.")
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("-f", "--filename", metavar="FILE", help="The same, as in kubectl.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    pool_state: Annotated[
        Path | None,
        typer.Option(help="Plan from this saved state, without the cluster."),
    ] = None,
    moment: Annotated[
        str | None,
        typer.Option("--at", help="Creation time of the job (RFC 3339). Default: now, or when the state was saved."),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("-o", "--output")] = "table",
) -> None:
    """Print the answer that a job would get; apply nothing.

    The answer is the plan, or the refusal with its arithmetic. Exits with status 0 if the deadline would be promised, 1
    if not, 2 if there is no answer. Without the right to read all namespaces, the answer leaves out the jobs of other
    namespaces, and says so.

    To plan without the cluster, save its state first:

    \b
    kubectl get pools,divisiblejobs,profiles,reservations,namespaces -A -o json > state.json
    """  # noqa: D301  the mark before a line that is not wrapped
    if (manifest is None) == (file is None):
        raise typer.BadParameter(f"give the job's manifest once: {program.name()} plan FILE")
    from punctual.cli.cluster_state import ClusterState  # noqa: PLC0415
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415
    from punctual.sim.gc_pause import uncollected  # noqa: PLC0415

    cluster = ClusterState(Kubectl(context), namespace) if pool_state is None else nullcontext(pool_state)
    try:
        # kubectl reads while Python imports the models, the core and rich; a collection would only slow these down
        with cluster as source, uncollected():
            from punctual.cli import plan_screen  # noqa: PLC0415
            from punctual.cli.plan import plan as answers  # noqa: PLC0415

            found = answers(manifest or file or "-", namespace=namespace, source=source, moment=moment)
    except PunctualError as error:
        print(f"{program.name()}: {error}", file=sys.stderr)
        sys.exit(2)
    if output == "json":
        for answer in found:
            print(json.dumps(answer.document()))
    else:
        plan_screen.show_all(found)
    sys.exit(0 if all(answer.promised for answer in found) else 1)


@benches.command()
def admission(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Make a tenth of the decisions.")] = False,
) -> None:
    """Measure decisions of admission: takes minutes.

    Fast and exact decisions are compared with the papers' algorithms as printed.
    """
    from punctual.benchmarks import admission  # noqa: PLC0415  numpy and the core

    admission.show(admission.admission(quick=quick), as_json=as_json)


@simulations.command("jobs")
def simulate_jobs(
    trace: Annotated[str | None, typer.Argument(metavar="TRACE", help="JSON lines, - for standard input.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
    horizon: Annotated[
        float | None, typer.Option(min=0.0, max=LONGEST, help="Leave out jobs that arrive then or later, s.")
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
    restart: Annotated[Restart, typer.Option(help="What is left of a chunk after a fault.")] = "redo",
    order: Annotated[Literal["EDF", "FIFO", "MWF"], typer.Option()] = "EDF",
    partition: Annotated[Literal["OPR", "EPR", "optimal", "equal"], typer.Option()] = "OPR",
    assign: Annotated[Literal["MN", "AN", "fewest", "all"], typer.Option()] = "MN",
    start: Annotated[Start, typer.Option(help="A job's processors: together, or each when it is free.")] = "ready",
    admission: Annotated[Literal["exact", "fast", "hybrid"], typer.Option()] = "exact",
    hybrid_threshold: Annotated[int, typer.Option(min=1, help="Waiting jobs from which on hybrid is fast.")] = 300,
    network: Annotated[Network, typer.Option()] = "one-port",
    miss_set_point: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="Have a controller hold this miss ratio.")
    ] = None,
    sample_period: Annotated[float, typer.Option(min=1e-6, help="Sample period of that controller, s.")] = 100_000.0,
    bound: Annotated[float | None, typer.Option(min=1e-6, help="Admit jobs by this utilization bound instead.")] = None,
    actual: Annotated[str, typer.Option(metavar="LOW,HIGH", help="Actual cost = estimate x uniform factor.")] = "1,1",
    offers: Annotated[bool, typer.Option(help="Search the earliest deadline for each refused job.")] = True,
    integer_units: Annotated[bool, typer.Option("--integer-units", help="Cut loads into whole units.")] = False,
    workload: Annotated[Literal["mamat"] | None, typer.Option(help="Draw jobs as the paper does.")] = None,
    system_load: Annotated[float, typer.Option(help="System load of the workload.")] = 1.0,
    avg_load: Annotated[float, typer.Option(help="Mean load of the workload, units.")] = 200.0,
    dc_ratio: Annotated[float, typer.Option(help="Mean deadline of the workload over E(mean load, N).")] = 2.0,
    tasks: Annotated[int | None, typer.Option(min=1, help="Number of jobs of the workload.")] = None,
) -> None:
    """Run divisible jobs through the operator's own Pool under a virtual clock."""
    from punctual.cli import simulate  # noqa: PLC0415  numpy and the core
    from punctual.scheduling.model.discipline import Discipline  # noqa: PLC0415
    from punctual.sim.gc_pause import uncollected  # noqa: PLC0415
    from punctual.sim.options import Options  # noqa: PLC0415
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
        print(f"{program.name()}: {error}", file=sys.stderr)
        sys.exit(2)
    result = simulate.run(lines, options)
    if as_json:
        with uncollected():
            print(json.dumps(result.document()))
    else:
        from punctual.cli.simulate_screen import show  # noqa: PLC0415  rich

        show(result, lines, options)
    if svg is not None:
        from punctual.cli.simulate_screen import draw  # noqa: PLC0415  rich

        _write(svg, draw(result, lines, options))


for _command in commands.COMMANDS:
    app.command()(_command)


def _write(file: Path, text: str) -> None:
    """Write a file as a whole, or leave it as it was."""
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
    """Run the command line. An error prints one sentence and exits with status 2."""
    # pydantic would search all installed packages for plugins of its own: some 50 ms
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        try:
            if program.started_as() == program.COMPLETION:
                completion.complete(app)
                return
            app(prog_name=program.name())
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except PunctualError as error:
        print(f"{program.name()}: {program.spoken(str(error))}", file=sys.stderr)
    except BrokenPipeError:  # the reader of a pipe has closed it
        _drop_output()
    except OSError as error:
        print(
            f"{program.name()}: {error.filename or 'the output'} cannot be written: {error.strerror}", file=sys.stderr
        )
        _drop_output()
    sys.exit(2)


def _drop_output() -> None:
    """Discard buffered output: the interpreter would fail on it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

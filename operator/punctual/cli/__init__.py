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
from punctual.cli.output import write
from punctual.cli.simulations import commands as simulations
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
app.add_typer(simulations.app, name="simulate")


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
    from punctual.kube.api import crd  # noqa: PLC0415  pydantic and the models are heavy

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
    write(svg, drawn)
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
    more: Annotated[
        int,
        typer.Option(
            "--add-processors",
            metavar="N",
            min=0,
            max=10_000,
            help="Answer as if N more processors, all free, joined each pool that a job names.",
        ),
    ] = 0,
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
    from punctual.gc_pause import uncollected  # noqa: PLC0415

    cluster = ClusterState(Kubectl(context), namespace) if pool_state is None else nullcontext(pool_state)
    try:
        # kubectl reads while Python imports the models, the core and rich; a collection would only slow these down
        with cluster as source, uncollected():
            from punctual.cli import plan_screen  # noqa: PLC0415
            from punctual.cli.plan import plan as answers  # noqa: PLC0415

            found = answers(manifest or file or "-", namespace=namespace, source=source, moment=moment, more=more)
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


for _command in commands.COMMANDS:
    app.command()(_command)


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

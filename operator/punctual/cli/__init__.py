"""The command line: ``punctual …``, also as a kubectl plugin.

A command is a function of a module beside this one, registered here by name. Nothing heavy is imported up here (kopf
takes 0.4 s, kubernetes 0.2 s): each command imports what it needs, so that ``--help`` and completion answer at once.
"""

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

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


@app.callback()
def _punctual() -> None:
    """Keep `punctual COMMAND` even where there is one command only."""


@app.command()
def version() -> None:
    """Print the version."""
    print(metadata.version("punctual"))


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
    """Show jobs as they run: progress of every chunk, ETA, margin; through kubectl.

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
    from punctual.cli import svg as picture  # noqa: PLC0415
    from punctual.cli import timeline as timelines  # noqa: PLC0415

    drawn = picture.svg(timelines.timeline(recorded.read(record), jobs or ()), title=title)
    try:
        svg.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise PunctualError(f"{svg} cannot be written: {error.strerror}") from error
    print(svg)


@benches.command()
def admission(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the decisions.")] = False,
) -> None:
    """Time decisions of admission, fast and exact, beside the papers' algorithms to the letter: some minutes."""
    from punctual.cli import bench  # noqa: PLC0415  numpy and the core

    bench.show(bench.admission(quick=quick), as_json=json)


def main() -> None:
    """Run the command line; an error of ours is one sentence and exit code 1."""
    try:
        app()
    except PunctualError as error:
        print(f"punctual: {error}", file=sys.stderr)
        sys.exit(1)

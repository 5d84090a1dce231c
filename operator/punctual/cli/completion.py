"""Completion of the words of the command line, also of names of objects; kubectl asks for it as it does of any plugin.

kubectl calls ``kubectl_complete-punctual`` with the words after ``kubectl punctual``; the last one is the word to
complete, perhaps empty. It prints a candidate per line, and last the directive that tells the shell what to do with
them (https://github.com/spf13/cobra: ShellCompDirective). One call of kubectl reads the names. Without an answer within
seconds there are none: a shell must not hang.
"""

import io
import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Final

import typer

FILES: Final = 0
"""Directive: if there is no candidate, complete names of files."""
NO_FILES: Final = 4
PATIENCE: Final = "3s"
TAKES_FILES: Final = frozenset({"plan", "submit", "timeline", "simulate", "crds"})
JOBS: Final = "divisiblejobs.punctual.dev"
_PODS = '{range .items[*]}{.metadata.name}{"\\n"}{range .status.chunks[*]}{.pod}{"\\n"}{end}{end}'
_NAMES = '{range .items[*]}{.metadata.name}{"\\n"}{end}'


def jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of jobs."""
    return _names(ctx, incomplete, JOBS, _NAMES)


def jobs_and_pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of jobs, and of the pods of their chunks: statuses have both."""
    return _names(ctx, incomplete, JOBS, _PODS)


def pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of pools."""
    return _names(ctx, incomplete, "pools.punctual.dev", _NAMES)


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of namespaces."""
    return _names(ctx, incomplete, "namespaces", _NAMES)


def contexts(incomplete: str) -> list[str]:
    """Return names of the kubeconfig's contexts."""
    return _kubectl(None, incomplete, "config", "get-contexts", "--output", "name")


def _names(ctx: typer.Context, incomplete: str, kind: str, path: str) -> list[str]:
    namespace = ctx.params.get("namespace")
    where = ["--namespace", namespace] if namespace else []
    if ctx.params.get("everywhere"):
        where = ["--all-namespaces"]
    words = "get", kind, "--output", f"jsonpath={path}", "--request-timeout", PATIENCE, *where
    given = ctx.params.get("jobs") or ()
    return [word for word in _kubectl(ctx.params.get("context"), incomplete, *words) if word not in given]


def _kubectl(context: str | None, incomplete: str, *words: str) -> list[str]:
    from punctual.cli.kubectl import Kubectl  # noqa: PLC0415  only if a name is to be completed
    from punctual.errors import PunctualError  # noqa: PLC0415

    try:
        told = Kubectl(context).run(*words)
    except PunctualError:
        return []
    return [word for word in dict.fromkeys(told.split()) if word.startswith(incomplete)]


def answer(app: typer.Typer, words: Iterable[str]) -> str:
    """Return what kubectl gets for these words: candidates, and the directive."""
    *before, last = list(words) or [""]
    found = [] if last.startswith("-") and "=" in last else _candidates(app, [*before, last])
    files = not found and next((word for word in before if not word.startswith("-")), "") in TAKES_FILES
    return "\n".join([*found, f":{FILES if files else NO_FILES}"])


def _candidates(app: typer.Typer, words: list[str]) -> list[str]:
    """Ask typer as the completion of a shell does: by the environment."""
    asked = {
        "_PUNCTUAL_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["punctual", *words[:-1]]) + " " + (shlex.quote(words[-1]) if words[-1] else ""),
        "COMP_CWORD": str(len(words)),
    }
    os.environ.update(asked)
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            app(prog_name="punctual", complete_var="_PUNCTUAL_COMPLETE")
    except SystemExit:
        pass
    finally:
        for name in asked:
            del os.environ[name]
    return [line for line in told.getvalue().splitlines() if line]


def complete(app: typer.Typer) -> None:
    """Do what kubectl asks for."""
    print(answer(app, sys.argv[1:]))

"""Completion of the words of the command line, also of names of objects; kubectl asks for it as it does of any plugin.

kubectl calls ``kubectl_complete-punctual`` with the words after ``kubectl punctual``; the last one is the word to
complete, perhaps empty. It prints a candidate per line, and last the directive that tells the shell what to do with
them (https://github.com/spf13/cobra: ShellCompDirective). One call of kubectl reads the names. Without an answer within
seconds there are none: a shell must not hang.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

FILES: Final = 0
"""Directive: if there is no candidate, complete names of files."""
NO_FILES: Final = 4
PATIENCE: Final = "3s"
TAKES_FILES: Final = frozenset({"plan", "submit", "timeline", "simulate", "crds"})
JOBS: Final = "divisiblejobs.punctual.dev"
RATES: Final = frozenset({"tr", "targetrate", "targetrates"})
"""What may stand before the name of a TargetRate."""
_PODS = '{range .items[*]}{.metadata.name}{"\\n"}{range .status.chunks[*]}{.pod}{"\\n"}{end}{end}'
_NAMES = '{range .items[*]}{.metadata.name}{"\\n"}{end}'


class Words(Protocol):
    """What is known of the command line, as a context of typer knows it."""

    @property
    def params(self) -> dict[str, Any]:
        """Values by name of the parameter."""


def jobs(ctx: Words, incomplete: str) -> list[str]:
    """Return names of jobs."""
    return _names(ctx, incomplete, JOBS, _NAMES)


def subjects(ctx: Words, incomplete: str) -> list[str]:
    """Return names of jobs, and of the pods of their chunks: statuses have both. Behind `tr/`: names of TargetRates."""
    kind, slash, _ = incomplete.partition("/")
    if slash and kind in RATES:
        return _names(ctx, incomplete, "targetrates.punctual.dev", _NAMES.replace("{.meta", f"{kind}/{{.meta"))
    return _names(ctx, incomplete, JOBS, _PODS)


def pools(ctx: Words, incomplete: str) -> list[str]:
    """Return names of pools."""
    return _names(ctx, incomplete, "pools.punctual.dev", _NAMES)


def namespaces(ctx: Words, incomplete: str) -> list[str]:
    """Return names of namespaces."""
    return _names(ctx, incomplete, "namespaces", _NAMES)


def contexts(incomplete: str) -> list[str]:
    """Return names of the kubeconfig's contexts."""
    return _kubectl(None, incomplete, "config", "get-contexts", "--output", "name")


def _names(ctx: Words, incomplete: str, kind: str, path: str) -> list[str]:
    namespace = ctx.params.get("namespace")
    where = ["--namespace", namespace] if namespace else []
    if ctx.params.get("everywhere"):
        where = ["--all-namespaces"]
    words = "get", kind, "--output", f"jsonpath={path}", "--request-timeout", PATIENCE, *where
    given = {*(ctx.params.get("jobs") or ()), *(ctx.params.get("names") or ())}
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
    """Return what kubectl gets for these words: candidates, and the directive.

    The words are matched against the commands' signatures. typer's own completion would also read their values, and
    import pydantic for that.
    """
    *before, last = list(words) or [""]
    found = [word for word in _candidates(app, before, last) if word.startswith(last)]
    files = not found and next((word for word in before if not word.startswith("-")), "") in TAKES_FILES
    return "\n".join([*dict.fromkeys(found), f":{FILES if files else NO_FILES}"])


class _Option(NamedTuple):
    """An option or argument of a command; an argument has no words."""

    name: str
    words: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    complete: Callable[..., list[str]] | None


class _Given(NamedTuple):
    """Values of options so far, as a context of typer has them."""

    params: dict[str, Any]


def _candidates(app: typer.Typer, before: list[str], last: str) -> list[str]:
    commands = _commands(app)
    while before and (group := commands.get(before[0])) is not None and isinstance(group, typer.Typer):
        commands, before = _commands(group), before[1:]
    chosen = commands.get(before[0]) if before else None
    if not before and last.startswith("-"):
        return ["--help", "--version"]
    if chosen is None or isinstance(chosen, typer.Typer):
        return [] if before else [*commands]
    options = [_option(name, hint) for name, hint in get_type_hints(chosen, include_extras=True).items()]
    by_word = {word: option for option in options for word in option.words}
    argument = next((option for option in options if not option.words), None)
    given, waiting = _read(before[1:], by_word, argument)
    if waiting is None and last.startswith("-"):
        return [*by_word, "--help", "-h"]
    asked = waiting or argument
    if asked is None:
        return []
    return [*asked.choices, *(_values(asked.complete, given, last) if asked.complete else ())]


def _read(words: list[str], by_word: dict[str, _Option], argument: _Option | None) -> tuple[_Given, _Option | None]:
    """Return the values of options and of the argument, and the option that the next word belongs to."""
    given, waiting = _Given({}), None
    for word in words:
        if waiting is not None:
            given.params[waiting.name], waiting = word, None
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            option = by_word.get(name)
            if option is not None and option.takes_value and not value:
                waiting = option
            elif option is not None:
                given.params[option.name] = value or True
        elif argument is not None:
            given.params.setdefault(argument.name, []).append(word)
    return given, waiting


def _commands(app: typer.Typer) -> dict[str, Any]:
    """Return commands and groups by name."""
    made = {info.name or info.callback.__name__: info.callback for info in app.registered_commands if info.callback}
    return made | {
        info.name: info.typer_instance for info in app.registered_groups if info.name and info.typer_instance
    }


def _option(name: str, hint: Any) -> _Option:
    """Read a parameter's annotation."""
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    info = next(iter(more), None)
    choices = next((get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal), ())
    words: tuple[str, ...] = ()
    if isinstance(info, OptionInfo):
        # typer takes the first word for the default until it makes the command
        told = (info.default, *(info.param_decls or ()))
        words = tuple(word for part in told if isinstance(part, str) for word in part.split("/"))
        words = tuple(word for word in words if word.startswith("-")) or (f"--{name.replace('_', '-')}",)
    return _Option(name, words, kind is not bool, choices, getattr(info, "autocompletion", None))


def _values(complete: Callable[..., list[str]], given: _Given, last: str) -> list[str]:
    return complete(last) if complete is contexts else complete(given, last)


def complete(app: typer.Typer) -> None:
    """Do what kubectl asks for."""
    print(answer(app, sys.argv[1:]))

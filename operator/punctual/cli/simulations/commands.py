"""The commands of `punctual simulate`. This module imports nothing slow; each command imports what it needs."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from punctual.cli.output import write
from punctual.cli.simulations.reading import load
from punctual.errors import PunctualError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Simulate jobs with the operator's own code.")

Restart = Literal["redo", "resume"]
Start = Literal["ready", "together"]
Network = Literal["one-port", "concurrent"]
LONGEST = 1e12
"""Maximum seconds of an option: a simulation must end before infinity."""


@app.command("jobs")
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
    from punctual.cli.simulations import jobs  # noqa: PLC0415  numpy and the core
    from punctual.gc_pause import uncollected  # noqa: PLC0415
    from punctual.scheduling.model.discipline import Discipline  # noqa: PLC0415
    from punctual.sim.options import Options  # noqa: PLC0415
    from punctual.sim.workload import Workload  # noqa: PLC0415
    from punctual.theory.cost import Cost  # noqa: PLC0415

    try:
        cost = Cost(chi, tau, theta_cm, theta_cp)
        options = Options(
            processors=processors,
            cost=cost,
            speeds=jobs.speeds(speeds, processors) if speeds else None,
            discipline=Discipline(
                order=order,
                partition=jobs.PARTITIONS[partition],
                assign=jobs.ASSIGNMENTS[assign],
                network="OnePort" if network == "one-port" else "Concurrent",
                start="Together" if start == "together" else "Ready",
            ),
            admission=jobs.ADMISSIONS[admission],
            threshold=hybrid_threshold,
            bound=bound,
            miss_set_point=miss_set_point,
            sample_period=sample_period,
            headroom=headroom,
            margin=margin,
            restart="Redo" if restart == "redo" else "Resume",
            actual=jobs.factors(actual),
            offers=offers,
            integer_units=integer_units,
            seed=seed,
        )
        jobs.check(options)
        drawn = None
        if workload is not None:
            drawn = Workload(cost=cost, processors=processors, load=system_load, average=avg_load, dc_ratio=dc_ratio)
        lines = jobs.lines(trace, drawn, seed=seed, tasks=tasks, horizon=horizon, processors=processors)
    except ValueError as error:
        raise PunctualError(str(error)) from error
    result = jobs.run(lines, options)
    if as_json:
        with uncollected():
            print(json.dumps(result.document()))
    else:
        from punctual.cli.simulations.jobs_screen import show  # noqa: PLC0415  rich

        show(result, lines, options)
    if svg is not None:
        from punctual.cli.simulations.jobs_screen import draw  # noqa: PLC0415  rich

        write(svg, draw(result, lines, options))


@app.command("control")
def simulate_control(
    plant: Annotated[str, typer.Argument(metavar="PLANT", help="One JSON object, - for standard input.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
) -> None:
    """Run jobs on the cores of one node, with the operator's own controllers."""
    from punctual.sim.plants.run import simulate  # noqa: PLC0415  numpy
    from punctual.sim.plants.scenario import parse  # noqa: PLC0415  pydantic

    result = simulate(load(plant, "PLANT", parse), seed=seed)
    if as_json:
        print(json.dumps(result.document()))
    else:
        from punctual.cli.simulations.control_screen import show  # noqa: PLC0415  rich

        show(result)


@app.command("rate")
def simulate_rate(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A JSON object, - for standard input.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
) -> None:
    """Hold applications at target rates with the operator's own law, on modelled nodes."""
    from punctual.gc_pause import uncollected  # noqa: PLC0415
    from punctual.sim.rates.run import simulate  # noqa: PLC0415
    from punctual.sim.rates.scenario import parse  # noqa: PLC0415  pydantic

    read = load(scenario, "SCENARIO", parse)
    result = simulate(read, seed)
    if as_json:
        with uncollected():
            print(json.dumps(result.document()))
    else:
        from punctual.cli.simulations.rate_screen import show  # noqa: PLC0415  rich

        show(result, read)


@app.command("coschedule")
def simulate_coschedule(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="A JSON object, - for standard input.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
    paper: Annotated[
        bool, typer.Option("--paper", help="Print table 4.1 of Solsona 2002 again; needs no scenario. A minute.")
    ] = False,
) -> None:
    """Run ranks that wait for each other on shared nodes, with and without aligned slices."""
    from punctual.cli.simulations import coschedule  # noqa: PLC0415  pydantic

    report = coschedule.simulate(coschedule.scenario(scenario, paper=paper), seed, paper=paper)
    if as_json:
        print(json.dumps(report.document()))
    else:
        from punctual.cli.simulations.coschedule_screen import show  # noqa: PLC0415  rich

        show(report)


@app.command("linger")
def simulate_linger(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
    nodes: Annotated[int, typer.Option(min=1, max=10_000)] = 64,
    policy: Annotated[
        Literal["LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate"],
        typer.Option(help="What a guest does when its node becomes busy."),
    ] = "LingerLonger",
    guests: Annotated[int, typer.Option(min=1, max=1_000_000, help="Guests, held constant.")] = 128,
    guest_work: Annotated[float, typer.Option(min=1e-3, max=LONGEST, help="CPU seconds of a guest.")] = 600.0,
    migration: Annotated[float, typer.Option(min=0.0, max=LONGEST, help="Seconds of a move.")] = 21.3,
    switch_cost: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Seconds that a host loses when it preempts a guest.")
    ] = 0.0001,
    hosts: Annotated[
        str,
        typer.Option(
            metavar="ryu|constant:U|FILE",
            help="The paper's hosts, constant use U, or a trace; nodes that a trace does not name are always idle.",
        ),
    ] = "ryu",
    horizon: Annotated[
        float, typer.Option(min=2.0, max=1e7, help="Seconds that are simulated, rounded up to a multiple of 2.")
    ] = 3600.0,
    divisible: Annotated[
        bool,
        typer.Option("--divisible", help="Cut guests' ranges short and start the rests elsewhere, also on free nodes."),
    ] = False,
    parallel: Annotated[
        int, typer.Option(min=1, max=10_000, help="Processes of a guest; they wait for each other after each phase.")
    ] = 1,
    phase: Annotated[float, typer.Option(min=0.001, max=3600.0, help="CPU seconds of a process in a phase.")] = 0.5,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Parallel guests that linger choose how many processes they run.")
    ] = False,
) -> None:
    """Run guests on what the nodes' own work leaves."""
    from punctual.cli.simulations import linger  # noqa: PLC0415  numpy
    from punctual.sim.linger.options import Options  # noqa: PLC0415
    from punctual.sim.linger.run import simulate  # noqa: PLC0415

    options = Options(
        nodes=nodes,
        policy=policy,
        guests=guests,
        work=guest_work,
        migration=migration,
        switch=switch_cost,
        hosts=linger.hosts(hosts, nodes),
        horizon=linger.horizon(horizon, nodes),
        divisible=divisible,
        parallel=linger.processes(parallel, nodes),
        phase=phase,
        adapt=adapt,
    )
    result = simulate(options, seed=seed)
    if as_json:
        print(json.dumps(result.document()))
    else:
        from punctual.cli.simulations.linger_screen import show  # noqa: PLC0415  rich

        show(result)

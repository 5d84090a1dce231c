"""The examples as the operator would run them: chunks of any cut, then the reduce, against one run alone."""

import itertools
import json
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = Path(__file__).parents[3] / "examples"
PRIMES = [sys.executable, str(EXAMPLES / "primes" / "primes.py")]
CLOCKS = [sys.executable, str(EXAMPLES / "clocks" / "clocks.py")]
READINGS = [sys.executable, str(EXAMPLES / "readings" / "readings.py")]
PROTEINS = [sys.executable, str(EXAMPLES / "proteins" / "search.py")]
MERTENS = [str(EXAMPLES / "mertens" / "mertens.sh")]
ZONE_TAB = Path("/usr/share/zoneinfo/zone.tab")

few_cuts = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # every example makes folders of its own
)


def run(program, folder, *, begin, end, total, offer=None, **more):
    """One chunk's process; returns its result."""
    folder.mkdir(parents=True)
    if offer is not None:
        (folder / "offer").write_text(f"{offer}\n")
    environment = {
        "PATH": "/usr/bin:/bin",
        "PUNCTUAL_BEGIN": str(begin),
        "PUNCTUAL_END": str(end),
        "PUNCTUAL_TOTAL": str(total),
        "PUNCTUAL_DIR": str(folder),
        "PUNCTUAL_OFFER": str(folder / "offer"),
        "PUNCTUAL_TERMINATION_LOG": str(folder / "message"),
        **{name: str(value) for name, value in more.items()},
    }
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "message").read_text()


def chunks(program, folder, cuts, total):
    """Run the range cut so and reduce it; returns the reduce's result."""
    results = folder / "results"
    results.mkdir(parents=True)
    for begin, end in itertools.pairwise(sorted({0, total, *cuts})):
        (results / f"{begin}-{end}").write_text(
            run(program, folder / f"{begin}", begin=begin, end=end, total=total),
        )
        assert int((folder / f"{begin}" / "progress").read_text()) == end - begin
    return reduced(program, folder, total)


def reduced(program, folder, total):
    more = {"PUNCTUAL_RESULTS": folder / "results"}
    return run([*program, "reduce"], folder / "reduce", begin=0, end=total, total=total, **more)


@few_cuts
@given(cuts=st.sets(st.integers(1, 9), max_size=4))
def test_primes_cut_anywhere_are_the_primes_of_one_run(cuts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("primes")
    alone = json.loads(run(PRIMES, folder / "alone", begin=0, end=10, total=10))
    assert json.loads(chunks(PRIMES, folder, cuts, 10)) == alone


def test_primes_are_prime(tmp_path):
    start = 10**12
    found = [number for number in range(start + 1, start + 2**18, 2) if is_prime(number)]
    gaps = [after - before for before, after in itertools.pairwise(found)]
    expected = [len(found), gaps.count(2), found[0], found[-1], max(gaps), found[gaps.index(max(gaps))]]
    assert json.loads(run(PRIMES, tmp_path / "one", begin=0, end=1, total=1)) == expected


def is_prime(number):
    """Miller and Rabin's test, exact below 3·10^14 with these bases."""
    if any(number % small == 0 for small in (3, 5, 7, 11, 13, 17, 19, 23)):
        return False
    odd = number - 1
    while odd % 2 == 0:
        odd //= 2
    for base in (2, 3, 5, 7, 11, 13, 17):
        power, at = pow(base, odd, number), odd
        while at != number - 1 and power not in (1, number - 1):
            power, at = power * power % number, at * 2
        if power != number - 1 and at % 2 == 0:
            return False
    return True


@pytest.fixture(scope="module")
def zones(tmp_path_factory):
    """Every 30th zone: the whole file takes ten seconds."""
    lines = [line for line in ZONE_TAB.read_text().splitlines(keepends=True) if not line.startswith("#")]
    path = tmp_path_factory.mktemp("zones") / "zones.tab"
    path.write_text("".join(lines[::30]))
    return path


def with_input(folder, path):
    """The program beside its input, as in the image."""
    folder.mkdir(exist_ok=True)
    (folder / "clocks.py").write_text((EXAMPLES / "clocks" / "clocks.py").read_text())
    (folder / "zones.tab").write_bytes(path.read_bytes())
    return [sys.executable, str(folder / "clocks.py")]


@few_cuts
@given(cuts=st.sets(st.integers(1, 39), max_size=4))
def test_clocks_cut_anywhere_are_the_clocks_of_one_run(cuts, zones, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clocks")
    program = with_input(folder, zones)
    alone = json.loads(run(program, folder / "alone", begin=0, end=1, total=1))
    assert alone["zones"] == len(zones.read_text().splitlines())
    assert json.loads(chunks(program, folder, cuts, 40)) == alone


def test_a_clock_that_never_changes_is_as_far_from_the_sun_as_its_place(tmp_path):
    (tmp_path / "abidjan").write_text("CI\t+0519-00402\tAfrica/Abidjan\n")
    found = json.loads(run([*CLOCKS, str(tmp_path / "abidjan")], tmp_path / "one", begin=0, end=1, total=1))
    days = 68 * 365 + 17  # 1970 to 2037
    seconds = (4 * 60 + 2) * 4 * days  # four seconds per minute of arc
    assert found == {"zones": 1, "seconds": seconds, "summer": 0, "widest": [[seconds, "Africa/Abidjan", "CI"]]}


@few_cuts
@given(cuts=st.sets(st.integers(1, 9), max_size=4))
def test_mertens_cut_anywhere_is_the_known_value(cuts, tmp_path_factory):
    assert chunks(MERTENS, tmp_path_factory.mktemp("mertens"), cuts, 10) == "-48\n"  # OEIS A084237: M(10^5)


def test_the_shell_script_honours_an_offer(tmp_path):
    (tmp_path / "results").mkdir()
    short = run(MERTENS, tmp_path / "short", begin=2, end=10, total=10, offer=6)
    assert (tmp_path / "short" / "end").read_text() == "6\n"
    assert (tmp_path / "short" / "progress").read_text() == "4\n"
    (tmp_path / "results" / "2-6").write_text(short)
    for begin, end in ((0, 2), (6, 10)):
        part = run(MERTENS, tmp_path / f"{begin}", begin=begin, end=end, total=10)
        (tmp_path / "results" / f"{begin}-{end}").write_text(part)
    assert reduced(MERTENS, tmp_path, 10) == "-48\n"


@pytest.mark.parametrize("program", [PRIMES, CLOCKS, MERTENS], ids=lambda program: Path(program[-1]).name)
@pytest.mark.parametrize("names", [(), ("0-4",), ("4-10",), ("0-4", "3-10"), ("0-4", "6-10")], ids=str)
def test_a_reduce_without_all_results_fails(program, names, tmp_path):
    for name in names:
        (tmp_path / name).write_text("[0, 0, 0, 0, 0, 0]")
    environment = {
        "PATH": "/usr/bin:/bin",
        "PUNCTUAL_TOTAL": "10",
        "PUNCTUAL_RESULTS": str(tmp_path),
        "PUNCTUAL_TERMINATION_LOG": str(tmp_path / ".message"),
    }
    done = subprocess.run([*program, "reduce"], env=environment, capture_output=True, timeout=200, check=False)
    assert done.returncode != 0
    assert done.stderr


@few_cuts
@given(cuts=st.sets(st.integers(1, 9), max_size=4))
def test_readings_cut_anywhere_are_those_of_the_whole_table(cuts, tmp_path_factory):
    source = runpy.run_path(str(EXAMPLES / "readings" / "source.py"))
    data = source["table"](300)
    folder = tmp_path_factory.mktemp("readings")
    (folder / "turn").write_text("now")
    (folder / "results").mkdir()
    server = source["Source"](("127.0.0.1", 0), data, None, secret="Bearer x")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        for begin, end in itertools.pairwise(sorted({0, 10, *cuts})):
            here = folder / f"{begin}"
            env = {
                "PUNCTUAL_INPUT_URL": f"http://127.0.0.1:{server.server_port}/table.csv",
                "PUNCTUAL_INPUT_HEADERS": "Authorization",
                "PUNCTUAL_INPUT_HEADER_0": "Bearer x",
                "PUNCTUAL_INPUT": folder / "data",
                "PUNCTUAL_INPUT_CUT": "Lines",
                "PUNCTUAL_TURN": folder / "turn",
            }
            run([sys.executable, "-m", "punctual.fetch"], folder / f"in-{begin}", begin=begin, end=end, total=10, **env)
            (folder / "results" / f"{begin}-{end}").write_text(
                run(READINGS, here, begin=begin, end=end, total=10, **env)
            )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    whole = {}
    for line in data.decode().splitlines():
        station, degrees = line.split(",")
        whole.setdefault(station, []).append(round(10 * float(degrees)))
    assert json.loads(reduced(READINGS, folder, 10)) == {
        station: [len(all_), sum(all_), min(all_), max(all_)] for station, all_ in whole.items()
    }


def test_the_table_of_readings_is_served_where_the_job_looks_for_it():
    secret, pod, service = yaml.safe_load_all((EXAMPLES / "readings" / "source.yaml").read_text())
    job = yaml.safe_load((EXAMPLES / "readings" / "job.yaml").read_text())
    http = job["spec"]["input"]["http"]
    assert http["url"].split("/")[2] == service["metadata"]["name"]
    key = {"name": secret["metadata"]["name"], "key": next(iter(secret["stringData"]))}
    assert http["headers"] == [{"name": "Authorization", "secretKeyRef": key}]
    assert [e["valueFrom"]["secretKeyRef"] for e in pod["spec"]["containers"][0]["env"]] == [key]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("name", ["primes", "clocks", "mertens", "readings"])
def test_a_manifest_is_a_job_that_runs_what_is_there(name):
    from punctual.kube.api import DivisibleJob, parse

    manifest = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    spec = parse(DivisibleJob, manifest).spec
    assert spec.reduce is not None
    for template in (manifest["spec"]["template"], manifest["spec"]["reduce"]["template"]):
        (container,) = template["spec"]["containers"]
        program = next(word for word in container["command"] if word.startswith("/opt/punctual/examples/"))
        assert (EXAMPLES / program.removeprefix("/opt/punctual/examples/")).is_file()


def test_the_parallel_program_is_two_guaranteed_pods_that_are_aligned():
    from punctual.kube.api import TargetRate, parse

    target, service, ranks = yaml.safe_load_all((EXAMPLES / "mpi" / "mpi.yaml").read_text())
    spec, template = parse(TargetRate, target).spec, ranks["spec"]["template"]
    assert (spec.coscheduling, ranks["spec"]["replicas"]) == ("Aligned", 2)
    assert spec.selector.match_labels == service["spec"]["selector"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert service["metadata"]["name"] == ranks["spec"]["serviceName"]


def test_the_pool_is_one():
    from punctual.kube.api import Pool, parse

    pool = parse(Pool, yaml.safe_load((EXAMPLES / "pool.yaml").read_text()))
    assert pool.spec.processor.cpu == 0.1


def test_a_pool_with_devices_is_one_and_so_is_its_job():
    from punctual.kube.api import DivisibleJob, Pool, parse

    pool, job = yaml.safe_load_all((EXAMPLES / "gpus.yaml").read_text())
    assert parse(Pool, pool).spec.processor.resources == {"nvidia.com/gpu": 1}
    assert parse(DivisibleJob, job).spec.pool == pool["metadata"]["name"]


PROTEIN_FILE = "".join(f">p{n} of a test\n{'MKVL' * (n % 7 + 1)}\n{'GG' * (n % 3)}\n" for n in range(30))


@few_cuts
@given(cuts=st.sets(st.integers(1, 71)))
def test_proteins_searches_each_record_once_in_any_cut(tmp_path_factory, cuts):
    """blastp is played by a program that prints what it is asked for; with the real one it was tried by hand."""
    folder = tmp_path_factory.mktemp("proteins")
    (folder / "queries").write_text(PROTEIN_FILE)
    played = folder / "bin" / "blastp"
    played.parent.mkdir()
    played.write_text("#!/bin/sh\ncat; echo\n")
    played.chmod(0o755)
    whole = "".join(f">{record}\n" for record in PROTEIN_FILE.rstrip("\n").split("\n>"))[1:]
    results = folder / "results"
    results.mkdir()
    for begin, end in itertools.pairwise(sorted({0, 72, *cuts})):
        message = run(
            [*PROTEINS, str(folder / "queries")],
            folder / f"{begin}",
            begin=begin,
            end=end,
            total=72,
            PATH=f"{played.parent}:/usr/bin:/bin",
        )
        (results / f"{begin}-{end}").write_text(message)
    environment = {"PUNCTUAL_RESULTS": str(results), "PUNCTUAL_TOTAL": "72", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*PROTEINS, "reduce"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.replace("\n\n", "\n") == whole.replace("\n\n", "\n")

"""Traces: what is read, and what is refused with the line, the field and what would be right."""

import pytest

from punctual.sim.trace import FaultLine, JobLine, ReservationLine, TraceError, read

GOOD = """\
{"id": "j2", "arrival": 3.5, "load": 80.0, "deadline": 90.0, "chi": 100.0, "tau": 1.0, "theta_cm": 0, "theta_cp": 0}
{"id": "j1", "arrival": 0.0, "load": 200, "deadline": 400.0}

{"id": "r1", "kind": "reservation", "arrival": 10.0, "start": 100.0, "end": 200.0, "processors": 4, "io_ratio": 0.1}
{"id": "f1", "kind": "fault", "arrival": 500.0, "processors": [0, 1, 2], "until": 900.0}
{"id": "f2", "kind": "fault", "arrival": 900.0, "processors": [0]}
"""


def test_a_trace_is_read_in_order_of_arrival():
    trace = read(GOOD.splitlines(), processors=4)
    assert [line.id for line in trace.lines] == ["j1", "j2", "r1", "f1", "f2"]
    j1, j2, r1, f1, f2 = trace.lines
    assert j1 == JobLine(id="j1", arrival=0.0, load=200.0, deadline=400.0)
    assert isinstance(j2, JobLine)
    assert (j2.chi, j2.tau, j2.theta_cm) == (100.0, 1.0, 0.0)
    assert isinstance(r1, ReservationLine)
    assert r1.io_ratio == 0.1
    assert isinstance(f1, FaultLine)
    assert f1.processors == (0, 1, 2)
    assert isinstance(f2, FaultLine)
    assert f2.until is None


AWAY = '{"id": "a", "kind": "fault", "arrival": 0, "processors": [1], "until": 5}'
AWAY_TOO = '{"id": "b", "kind": "fault", "arrival": 4, "processors": [0, 1]}'
JOB = '{"id": "a", "arrival": 0, "load": 1, "deadline": 1}'


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{", ["line 1: Invalid JSON"]),
        (f"{JOB}\n" + JOB.replace('"a"', '"b" oops'), ["line 2: Invalid JSON", "in column 12"]),
        ("[1]", ["line 1: Input should be an object"]),
        pytest.param("[" * 100_000, ["line 1: Invalid JSON"], id="deep"),
        pytest.param(f'{{"id": "a", "load": {"[" * 500}{"]" * 500}}}', ["line 1: Invalid JSON"], id="less deep"),
        ('{"id": "\\ud800", "arrival": 0, "load": 1, "deadline": 1}', ["line 1: Invalid JSON"]),
        ('{"id": "\udcff", "arrival": 0, "load": 1, "deadline": 1}', ["line 1: is not UTF-8, in column 9"]),
        ('{"id": "a", "load": 1, "arrival": 0, "load": 2, "deadline": 1}', ["line 1: load: appears twice"]),
        ('{"id": "a\\u001b[31m", "arrival": 0, "load": 1, "deadline": 1}', ["line 1: id: 'a\\x1b[31m' has characters"]),
        ('{"id": "a", "kind": [], "arrival": 0}', ["line 1: kind: [] is none of job, reservation, fault"]),
        pytest.param(JOB.replace("0", f'"{"9" * 999}"'), ["line 1: arrival", "999…"], id="long"),
        (JOB.replace('"load": 1', '"load": 1e308'), ["line 1: load", "less than or equal to 1000000000000"]),
        pytest.param(JOB.replace('"load": 1', f'"load": {"9" * 5000}'), ["line 1: Invalid JSON"], id="digits"),
        (JOB.replace('"arrival": 0', '"arrival": 1e300'), ["line 1: arrival", "less than or equal to 10000000000,"]),
        (JOB.replace("}", ', "chi": 5e-324}'), ["line 1: chi", "greater than or equal to 0.000000000001"]),
        (JOB.replace('"load": 1', '"load": 1e-10'), ["line 1: load: 1e-10 is too little to be counted beside 1.0"]),
        (
            f'{JOB.replace("1}", "9}")}\n{{"id": "b", "arrival": 0, "load": 1e10, "deadline": 1}}',
            ["line 1: load: 1.0 is too little to be counted beside 10000000000.0", "write 10 or more"],
        ),
        ('{"id": "a", "arrival": 0, "deadline": 1}', ["line 1: load: Field required"]),
        (f"{JOB}\n{JOB}", ["line 2: id: 'a' stands in line 1 already"]),
        ('{"id": "", "arrival": 0, "load": 1, "deadline": 1}', ["line 1: id", "at least 1 character"]),
        (
            '{"id": "a", "arrival": 0, "load": 0, "deadline": 1}',
            ["line 1: load", "greater than or equal to 0.000000000001, not 0"],
        ),
        (
            '{"id": "a", "arrival": 0, "load": -3, "deadline": 1}',
            ["line 1: load", "greater than or equal to 0.000000000001, not -3"],
        ),
        ('{"id": "a", "arrival": 0, "load": NaN, "deadline": 1}', ["line 1: load", "finite number"]),
        ('{"id": "a", "arrival": 0, "load": 1, "deadline": 1e999}', ["line 1: deadline", "finite number"]),
        ('{"id": "a", "arrival": -1, "load": 1, "deadline": 1}', ["line 1: arrival", "greater than or equal to 0"]),
        ('{"id": "a", "arrival": 0, "load": "1", "deadline": 1}', ["line 1: load", "valid number, not '1'"]),
        ('{"id": "a", "arrival": 0, "load": 1, "deadline": 1, "ki": 3}', ["line 1: ki: Extra inputs"]),
        (
            '{"id": "a", "arrival": 0, "load": 1, "deadline": 1, "chi": 0}',
            ["line 1: chi", "greater than or equal to 0.000000000001"],
        ),
        ('{"id": "a", "kind": "nap", "arrival": 0}', ["line 1: kind: 'nap' is none of job, reservation, fault"]),
        (
            '{"id": "a", "kind": "reservation", "arrival": 9, "start": 5, "end": 6, "processors": 1}',
            ["line 1: arrival <= start < end is needed"],
        ),
        (
            '{"id": "a", "kind": "reservation", "arrival": 0, "start": 5, "end": 6, "processors": 1, "io_ratio": 2}',
            ["line 1: io_ratio", "less than or equal to 1"],
        ),
        ('{"id": "a", "kind": "fault", "arrival": 0, "processors": []}', ["line 1: processors", "at least 1 item"]),
        ('{"id": "a", "kind": "fault", "arrival": 0, "processors": [4]}', ["there is no 4, the pool has 0 to 3"]),
        ('{"id": "a", "kind": "fault", "arrival": 0, "processors": [1, 1]}', ["processors: one is named twice"]),
        ('{"id": "a", "kind": "fault", "arrival": 5, "processors": [1], "until": 5}', ["until must be later"]),
        (f"{AWAY}\n{AWAY_TOO}", ["line 2: processors: 1 is away already by line 1"]),
    ],
)
def test_a_line_that_is_not_understood_is_told_by_number_and_field(written, says):
    with pytest.raises(TraceError) as refused:
        read(written.splitlines(), processors=4)
    for part in says:
        assert part in str(refused.value)

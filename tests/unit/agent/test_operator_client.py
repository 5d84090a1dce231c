"""The wire against a real TLS server: what goes wrong, and how it comes right again."""

import queue

import pytest

from punctual.wire import Report, SetPoint, SetPoints
from punctual_agent.operator_client import LARGEST_ANSWER, Exchange, ExchangeError, Exchanger

REPORT = Report(node="n1", instance="a", sequence=1, epoch=3)


@pytest.fixture
def files(tmp_path, authority):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(authority.ca)
    return tmp_path


@pytest.fixture
def exchange(files, operator):
    operator.answer = SetPoints(epoch=3).model_dump_json().encode()
    one = Exchange(operator.url, token_file=files / "token", ca_file=files / "ca.crt", timeout=60)
    yield one
    one.close()


def failed(exchange):
    with pytest.raises(ExchangeError) as caught:
        exchange.post(REPORT)
    return caught.value.kind


def test_a_report_goes_up_and_set_points_come_down(exchange, operator):
    points = SetPoints(epoch=4, pods=[SetPoint(uid="u", cap=0.5, rest_cap=0.9, seconds_left=-1.5)])
    operator.answer = points.model_dump_json().encode()
    assert exchange.post(REPORT).points == points
    assert operator.reports == [REPORT]
    assert operator.tokens == ["Bearer first"]


def test_one_connection_serves_many_seconds(exchange, operator):
    for _ in range(3):
        exchange.post(REPORT)
    assert operator.connections == 1


def test_a_rotated_token_is_used_at_once(exchange, operator, files):
    exchange.post(REPORT)
    (files / "token").write_text("second")
    exchange.post(REPORT)
    assert operator.tokens == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(("status", "kind"), [(401, "refused"), (403, "refused"), (503, "notLeader"), (500, "status")])
def test_an_answer_but_200_is_told_and_ends_the_connection(exchange, operator, status, kind):
    operator.status = status
    assert failed(exchange) == kind
    operator.status = 200
    exchange.post(REPORT)
    assert operator.connections == 2


def test_a_lower_epoch_is_refused_and_ends_the_connection(exchange, operator):
    operator.answer = SetPoints(epoch=2).model_dump_json().encode()
    assert failed(exchange) == "lowerEpoch"
    operator.answer = SetPoints(epoch=3).model_dump_json().encode()
    exchange.post(REPORT)
    assert operator.connections == 2


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"epoch": -1}', b'{"epoch": 3, "pods": [{"uid": "u"}]}'])
def test_an_answer_that_makes_no_sense_is_told(exchange, operator, answer):
    operator.answer = answer
    assert failed(exchange) == "badAnswer"


def test_an_endless_answer_is_not_read(exchange, operator):
    operator.answer = b" " * (LARGEST_ANSWER + 1)
    assert failed(exchange) == "badAnswer"


def test_a_kept_connection_that_ended_costs_no_second(exchange, operator):
    exchange.post(REPORT)
    operator.hang_up()
    exchange.post(REPORT)
    assert operator.connections == 2


def test_an_operator_that_is_away_and_comes_back(exchange, operator, make_operator):
    exchange.post(REPORT)
    operator.close()
    assert failed(exchange) == "unreachable"
    assert failed(exchange) == "unreachable"
    back = make_operator(port=operator.port)
    back.answer = SetPoints(epoch=3).model_dump_json().encode()
    assert exchange.post(REPORT).points.epoch == 3


def test_a_silent_operator_is_given_up(files, operator):
    operator.silent = True
    exchange = Exchange(operator.url, token_file=files / "token", ca_file=files / "ca.crt", timeout=0.2)
    assert failed(exchange) == "timeout"


def test_a_strange_authority_is_not_trusted_until_the_file_says_so(exchange, operator, files, other_authority):
    exchange.post(REPORT)
    operator.present(other_authority)
    exchange.close()
    assert failed(exchange) == "tls"
    (files / "ca.crt").write_bytes(other_authority.ca)
    assert exchange.post(REPORT).points.epoch == 3


def test_both_authorities_are_trusted_while_they_rotate(exchange, operator, files, authority, other_authority):
    (files / "ca.crt").write_bytes(authority.ca + other_authority.ca)
    exchange.post(REPORT)
    operator.present(other_authority)
    operator.hang_up()
    exchange.post(REPORT)
    assert operator.connections == 2


def test_a_changed_authority_ends_the_connection_that_trusted_the_old_one(exchange, operator, files, other_authority):
    exchange.post(REPORT)
    (files / "ca.crt").write_bytes(other_authority.ca)
    assert failed(exchange) == "tls"


def test_a_name_the_certificate_does_not_have_is_not_trusted(operator, files):
    url = f"https://127.0.0.2:{operator.port}"
    exchange = Exchange(url, token_file=files / "token", ca_file=files / "ca.crt", timeout=60)
    assert failed(exchange) in ("tls", "unreachable")
    assert operator.reports == []


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [("token", None, "noToken"), ("ca.crt", None, "noCA"), ("ca.crt", "", "noCA"), ("ca.crt", "x", "noCA")],
)
def test_files_that_are_not_there_yet_are_told(exchange, files, name, text, kind):
    if text is None:
        (files / name).unlink()
    else:
        (files / name).write_text(text)
    assert failed(exchange) == kind


def test_a_plain_address_is_refused(files):
    with pytest.raises(ValueError, match="not an https:// address"):
        Exchange("http://operator", token_file=files / "token", ca_file=files / "ca.crt", timeout=1)


class Held:
    """An exchange that hangs until told."""

    def __init__(self):
        self.got = queue.SimpleQueue()
        self.answers = queue.SimpleQueue()

    def post(self, report):
        self.got.put(report.sequence)
        answer = self.answers.get(timeout=60)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_while_an_exchange_hangs_the_newest_report_waits_and_the_others_are_dropped():
    inbox, held = queue.SimpleQueue(), Held()
    carrier = Exchanger(held, inbox)
    carrier.start()
    carrier.offer(REPORT)
    assert held.got.get(timeout=60) == 1
    for sequence in (2, 3, 4):
        carrier.offer(REPORT.model_copy(update={"sequence": sequence}))
    held.answers.put(SetPoints(epoch=1))
    assert held.got.get(timeout=60) == 4
    held.answers.put(ExchangeError("timeout", "x"))
    assert inbox.get(timeout=60) == SetPoints(epoch=1)
    assert inbox.get(timeout=60).kind == "timeout"
    bug = ZeroDivisionError()
    carrier.offer(REPORT)
    held.answers.put(bug)
    assert inbox.get(timeout=60) is bug

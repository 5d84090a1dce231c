"""The authority's steps: what changes when, and that no step leaves an agent without a server it trusts."""

import ssl
from dataclasses import replace

import pytest
from cryptography import x509

from punctual.kube.agents.ca import (
    DAY,
    HOUR,
    Lifetimes,
    Signed,
    Trust,
    advance,
    make_authority,
    make_serving,
    new_trust,
    service_names,
)

NOW = 1_800_000_000.0
LIVES = Lifetimes()
RENEWAL = NOW + LIVES.authority * 2 / 3 + HOUR  # the begin lies an hour back: a little later is surely due


@pytest.fixture(scope="module")
def trust():
    return new_trust(NOW, lifetimes=LIVES)


def test_nothing_is_due_at_first(trust):
    assert advance(trust, NOW, seen=None, lifetimes=LIVES) is trust
    assert advance(trust, NOW + 200 * DAY, seen=trust.bundle, lifetimes=LIVES) is trust


def test_a_successor_is_published_then_seen_then_signs_and_the_old_one_stays_until_it_expires(trust):
    second = advance(trust, RENEWAL, seen=trust.bundle, lifetimes=LIVES)
    assert second.signing == trust.signing
    assert second.coming is not None
    assert trust.signing.certificate in second.bundle
    assert second.coming.certificate in second.bundle

    # the ConfigMap does not hold it yet: waiting alone must not make it sign
    assert advance(second, RENEWAL + 30 * DAY, seen=trust.bundle, lifetimes=LIVES) is second
    third = advance(second, RENEWAL + 30 * DAY, seen=second.bundle, lifetimes=LIVES)
    assert third == replace(second, published=RENEWAL + 30 * DAY)
    assert advance(third, RENEWAL + 30 * DAY + LIVES.spread - 1, seen=third.bundle, lifetimes=LIVES) is third

    fourth = advance(third, RENEWAL + 30 * DAY + LIVES.spread, seen=third.bundle, lifetimes=LIVES)
    assert fourth == Trust(signing=second.coming, retired=(trust.signing.certificate,))
    assert advance(fourth, trust.signing.end - 1, seen=fourth.bundle, lifetimes=LIVES) is fourth
    fifth = advance(fourth, trust.signing.end + 1, seen=fourth.bundle, lifetimes=LIVES)
    assert fifth == Trust(signing=second.coming)


def test_an_authority_that_expired_while_nobody_was_here_is_replaced_at_once(trust):
    late = trust.signing.end + 1
    fresh = advance(trust, late, seen=trust.bundle, lifetimes=LIVES)
    assert fresh.signing.begin <= late < fresh.signing.end
    assert fresh.retired == ()
    second = advance(trust, RENEWAL, seen=trust.bundle, lifetimes=LIVES)
    assert advance(second, late, seen=None, lifetimes=LIVES).signing == second.coming


def test_it_is_read_back_as_it_was_written(trust):
    second = advance(trust, RENEWAL, seen=trust.bundle, lifetimes=LIVES)
    third = advance(second, RENEWAL, seen=second.bundle, lifetimes=LIVES)
    fourth = advance(third, RENEWAL + LIVES.spread, seen=third.bundle, lifetimes=LIVES)
    for one in (trust, second, third, fourth):
        assert Trust.from_data(one.to_data()) == one


@pytest.mark.parametrize("field", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("content", [None, "", "hello", "another's"])
def test_a_spoilt_secret_is_an_error(trust, field, content):
    data = trust.to_data()
    if content is None:
        del data[field]
    else:
        data[field] = make_authority(NOW, lifetimes=LIVES).key if content == "another's" else content
    with pytest.raises((ValueError, KeyError)):
        Trust.from_data(data)


def test_a_serving_certificate_names_the_service_and_never_outlives_its_authority(trust):
    names = service_names("punctual", "lab")
    serving = make_serving(trust.signing, names, NOW, lifetimes=LIVES)
    certificate = x509.load_pem_x509_certificate(serving.certificate.encode())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["punctual.lab.svc", "punctual.lab", "punctual"]
    assert serving.end == NOW + LIVES.serving
    last = make_serving(trust.signing, names, trust.signing.end - DAY, lifetimes=LIVES)
    assert last.end == trust.signing.end
    assert not serving.due(NOW)
    assert serving.due(serving.end - LIVES.serving / 3)


def test_its_key_opens_to_nobody_else(trust):
    other = make_authority(NOW, lifetimes=LIVES)
    with pytest.raises(ValueError, match="key"):
        Signed.parse(trust.signing.certificate, other.key)


def test_the_strictest_verification_takes_its_chain(trust):
    context = ssl.create_default_context(cadata=trust.bundle)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    assert [c["subject"] for c in context.get_ca_certs()]

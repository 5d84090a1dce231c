"""The client against a real API server: reading, writing, watching, every error, every way to show who asks."""

import asyncio
import base64
import contextlib
import datetime as dt
import gc
import json
import socket
import stat
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from server import job

from punctual import errors
from punctual.kube.api.resources import CONFIG_MAPS, JOBS, PODS, Resource
from punctual.kube.cluster.client import METADATA_LIST, ApiClient

POOLS = Resource("punctual.dev/v1alpha1", "pools")
ACCOUNTS = Resource("v1", "serviceaccounts")


def config_map(name: str, **data: str):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def rewritten(kubeconfig: Path, to: Path, *, user: dict | None = None, server: str = "") -> str:
    """Copy of a kubeconfig for another user or server."""
    config = json.loads(kubeconfig.read_text())
    if user is not None:
        config["users"][0]["user"] = user
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    to.write_text(json.dumps(config))
    return str(to)


@contextlib.asynccontextmanager
async def serving(handle):
    """URL of a server that treats each connection so, then ends it."""
    handlers: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*handlers)


async def token_of(client: ApiClient, namespace: str, account: str, *, audiences: tuple[str, ...] = ()) -> str:
    """Token of a service account that is made for it."""
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(ACCOUNTS.path(namespace=namespace), {"metadata": {"name": account}})
    path = ACCOUNTS.path(namespace=namespace, name=account, subresource="token")
    answer = await client.create(path, {"spec": {"audiences": list(audiences), "expirationSeconds": 600}})
    return answer["status"]["token"]


async def test_a_collection_is_read_by_pages(client, namespace):
    path = CONFIG_MAPS.path(namespace=namespace)
    for n in range(7):
        await client.create(path, config_map(f"c{n}", n=str(n)))
    pages = [[item["metadata"]["name"] for item in page.items] async for page in client.pages(path, page=3)]
    assert [len(page) for page in pages] == [3, 3, 1]
    listing = await client.list(path, page=3, field_selector="metadata.name!=c3")
    assert [item["metadata"]["name"] for item in listing.items] == ["c0", "c1", "c2", "c4", "c5", "c6"]
    assert int(listing.resource_version) > 0


async def test_apply_owns_its_fields_and_leaves_those_of_others(client, namespace):
    path = CONFIG_MAPS.path(namespace=namespace, name="shared")
    await client.apply(path, config_map("shared", ours="1", gone="1"), field_manager="a")
    await client.apply(path, config_map("shared", theirs="1"), field_manager="b")
    await client.apply(path, config_map("shared", ours="2"), field_manager="a")
    assert (await client.get(path))["data"] == {"ours": "2", "theirs": "1"}
    await client.apply(path, config_map("shared", ours="3"), field_manager="b")
    assert (await client.get(path))["data"] == {"ours": "3"}


async def test_merge_and_json_patches(client, namespace):
    path = CONFIG_MAPS.path(namespace=namespace, name="p")
    made = await client.create(CONFIG_MAPS.path(namespace=namespace), config_map("p", a="1", b="1"))
    await client.patch_merge(path, {"data": {"a": None, "c": "1"}})
    assert (await client.get(path))["data"] == {"b": "1", "c": "1"}
    version = made["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    with pytest.raises(errors.Invalid):
        await client.patch_json(path, [test, {"op": "remove", "path": "/data/b"}])
    await client.patch_json(path, [{"op": "remove", "path": "/data/b"}])
    assert (await client.get(path))["data"] == {"c": "1"}


async def test_any_character_can_be_applied(client, namespace):
    """The API server reads an apply as YAML, which has its own mind about some characters that JSON takes."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF)))
    path = CONFIG_MAPS.path(namespace=namespace, name="characters")
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "characters"}, "data": {"all": every}}
    assert (await client.apply(path, wanted, field_manager="test"))["data"]["all"] == every


async def test_a_dry_run_changes_nothing(client, namespace):
    await client.create(CONFIG_MAPS.path(namespace=namespace), config_map("dry"), dry_run=True)
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS.path(namespace=namespace, name="dry"))


async def test_every_precondition_that_does_not_hold_is_a_conflict(client, namespace):
    collection = CONFIG_MAPS.path(namespace=namespace)
    name = "guide"  # with "uid" in it, which must not be taken for one
    path = CONFIG_MAPS.path(namespace=namespace, name=name)
    made = await client.create(collection, config_map(name, a="1"))
    await client.patch_merge(path, {"data": {"a": "2"}})
    other = {"name": name, "uid": "00000000-0000-0000-0000-000000000000"}
    for version in (
        client.replace(path, made),
        client.patch_merge(path, {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}),
    ):
        with pytest.raises(errors.Conflict) as conflict:
            await version
        assert type(conflict.value) is errors.Conflict
    for uid in (
        client.patch_merge(path, {"metadata": other}),
        client.apply(path, config_map(name) | {"metadata": other}, field_manager="a"),
        client.apply(f"{collection}/d", config_map("d") | {"metadata": other | {"name": "d"}}, field_manager="a"),
        client.delete(path, uid=other["uid"]),
    ):
        with pytest.raises(errors.Replaced):
            await uid
    with pytest.raises(errors.AlreadyExists):
        await client.create(collection, config_map(name))
    await client.delete(path, uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await client.delete(path)


async def test_a_status_is_written_without_reading_the_spec_again(client, namespace):
    """A spec of 1 MB takes up to 27 MiB once it is read, and each refusal is a write of a status."""
    made = await client.create(JOBS.path(namespace=namespace), job("job", namespace, "main"))
    path = JOBS.path(namespace=namespace, name="job")
    status = {"epoch": 1, "state": "Refused"}
    answer = await client.put_status(path, {**made, "status": status}, field_manager="test")
    assert set(answer) == {"kind", "apiVersion", "metadata"}
    there = await client.get(path)
    assert there["spec"] == made["spec"]
    assert there["status"]["epoch"] == 1
    assert answer["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]
    assert (await client.metadata(path))["uid"] == made["metadata"]["uid"]
    with pytest.raises(errors.Conflict):
        await client.put_status(path, {**made, "status": status}, field_manager="test")
    with pytest.raises(errors.Invalid, match="unknown field"):
        await client.put_status(path, {**there, "status": {**status, "stat": 1}}, field_manager="test")


async def test_only_the_metadata_of_a_collection_can_be_fetched(client, namespace):
    collection = JOBS.path(namespace=namespace)
    for n in range(3):
        await client.create(collection, job(f"job-{n}", namespace, "main"))
    pages = [page async for page in client.pages(collection, page=2, accept=METADATA_LIST)]
    found = [item for page in pages for item in page.items]
    assert [item["metadata"]["name"] for item in found] == ["job-0", "job-1", "job-2"]
    assert not any("spec" in item for item in found)


async def test_what_can_never_be_right_is_invalid(client, namespace):
    with pytest.raises(errors.Invalid, match="Invalid value"):
        await client.create(CONFIG_MAPS.path(namespace=namespace), config_map("No Good Name"))
    await client.create(CONFIG_MAPS.path(namespace=namespace), config_map("x"))
    with pytest.raises(errors.Invalid):
        await client.patch_merge(CONFIG_MAPS.path(namespace=namespace, name="x"), [])
    with pytest.raises(errors.NotFound):
        await client.get("/apis/no.such.group/v1/things")


async def test_an_epoch_that_falls_is_fenced(client, namespace):
    pool = {"apiVersion": POOLS.version, "kind": "Pool", "metadata": {"name": namespace}}
    spec = {"nodeSelector": {"matchLabels": {"a": "b"}}, "processor": {"cpu": "1"}}
    await client.create(POOLS.path(), pool | {"spec": spec})
    path = POOLS.path(name=namespace)
    for epoch in (3, 3, 4):
        await client.apply(path, pool | {"status": {"epoch": epoch}}, field_manager="m", subresource="status")
    with pytest.raises(errors.Fenced):
        await client.apply(path, pool | {"status": {"epoch": 3}}, field_manager="m", subresource="status")
    with pytest.raises(errors.Invalid):
        await client.apply(path, pool | {"status": {"epoch": "5"}}, field_manager="m", subresource="status")
    with pytest.raises(errors.NotFound):
        await client.apply(
            POOLS.path(name="none"),
            pool | {"metadata": {"name": "none"}, "status": {"epoch": 1}},
            field_manager="m",
            subresource="status",
        )


async def test_a_watch_tells_what_happens_and_ends_in_order(client, namespace):
    path = CONFIG_MAPS.path(namespace=namespace)
    version = (await client.list(path)).resource_version
    big = "x" * 700_000  # above what readline() of aiohttp takes
    await client.create(path, config_map("big", a=big))
    await client.delete(f"{path}/big")
    async with contextlib.aclosing(client.watch(path, resource_version=version, seconds=60, silence=60)) as watch:
        told = [await anext(watch) for _ in range(2)]
    assert [event["type"] for event in told] == ["ADDED", "DELETED"]
    assert all(event["object"]["data"] == {"a": big} for event in told)
    async for _ in client.watch(path, resource_version=version, seconds=1, silence=60):
        pass  # how much it can tell in a second is the machine's affair


async def test_a_watch_that_is_left_early_keeps_no_connection_when_its_loop_ends(tunnel, namespace):
    path = CONFIG_MAPS.path(namespace=namespace)
    home = asyncio.get_running_loop()

    async def leave() -> None:
        async with ApiClient(str(tunnel.kubeconfig)) as client:
            version = (await client.list(path)).resource_version
            async with contextlib.aclosing(client.watch(path, resource_version=version)) as watch:
                await client.create(path, config_map("a"))
                await anext(watch)
                home.call_soon_threadsafe(tunnel.stall)  # nobody answers a goodbye any more

    await asyncio.to_thread(asyncio.run, leave())
    gc.collect()  # a transport that is still open warns when it goes, and a warning is an error here


async def test_a_call_that_is_cancelled_as_it_connects_keeps_no_connection_when_its_loop_ends(tunnel, monkeypatch):
    home = asyncio.get_running_loop()
    connected = aiohttp.client_proto.ResponseHandler.connection_made

    async def cancel() -> None:
        async with ApiClient(str(tunnel.kubeconfig)) as client:
            asks = asyncio.ensure_future(client.get("/version"))

            def cancelled(self, transport) -> None:
                connected(self, transport)
                home.call_soon_threadsafe(tunnel.stall)  # as above
                asks.cancel()

            monkeypatch.setattr(aiohttp.client_proto.ResponseHandler, "connection_made", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await asks

    await asyncio.to_thread(asyncio.run, cancel())
    gc.collect()


async def test_a_watch_from_a_version_long_forgotten_is_gone(client, namespace):
    # our kinds came into being after version 1, which nobody can tell about them
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(errors.Busy):  # the server gets to know a new kind some time after it is there
                with pytest.raises(errors.Gone):
                    await anext(client.watch(POOLS.path(), resource_version="1", seconds=30))
                return
            await asyncio.sleep(0.1)


async def test_nobody_there_and_nobody_answering_are_unreachable(kubeconfig, tmp_path):
    with socket.socket() as taken:  # by one who does not listen
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with ApiClient(rewritten(kubeconfig, tmp_path / "refused", server=server)) as client:
            with pytest.raises(errors.Unreachable):
                await client.get("/version")

    async with serving(lambda reader, _: reader.read()) as url:
        silent = rewritten(kubeconfig, tmp_path / "silent", server=url)
        async with ApiClient(silent, deadline=3600) as patient, ApiClient(silent, deadline=0.3) as client:
            waits = asyncio.ensure_future(patient.get("/version"))
            with pytest.raises(errors.Unreachable):
                await client.get("/version")
            with pytest.raises(errors.Unreachable):
                await anext(client.watch(PODS.path(), silence=0.3))
            assert not waits.done(), "each has the deadline that was asked for"
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)


@pytest.mark.parametrize("answer", ["429 Too Many Requests\r\nRetry-After: 7", "503 Unavailable", "502 Bad Gateway"])
async def test_a_server_that_wants_patience_is_busy(kubeconfig, tmp_path, answer):
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html>a proxy speaks no JSON</html>"
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    async with serving(refuse) as url, ApiClient(rewritten(kubeconfig, tmp_path / "busy", server=url)) as client:
        with pytest.raises(errors.Busy, match="no JSON") as busy:
            await client.get("/version")
    assert busy.value.retry_after == (7 if "429" in answer else 0.2)


async def test_a_token_that_is_wrong_is_unauthorized_and_one_without_rights_forbidden(
    client, namespace, kubeconfig, tmp_path
):
    wrong = rewritten(kubeconfig, tmp_path / "wrong", user={"token": "wrong"})
    async with ApiClient(wrong) as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.get("/api/v1/pods")
    token = await token_of(client, namespace, "poor")
    poor = rewritten(kubeconfig, tmp_path / "poor", user={"token": token})
    async with ApiClient(poor) as stranger:
        with pytest.raises(errors.NoRight, match="cannot list"):
            await stranger.list("/api/v1/pods")


async def test_tokens_are_reviewed_for_their_audience(client, namespace):
    token = await token_of(client, namespace, "agent", audiences=("punctual",))
    status = await client.review_token(token, ("punctual",))
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:agent"
    assert not (await client.review_token(token, ("another",))).get("authenticated")
    assert not (await client.review_token("rubbish", ("punctual",))).get("authenticated")


async def test_a_client_certificate_from_a_kubeconfig_is_shown(kubeconfig, tmp_path):
    pki = kubeconfig.parent / "pki"
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    authority_key = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "tester"),
        ]
    )
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(minutes=5))
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    user = {
        "client-certificate-data": base64.b64encode(certificate.public_bytes(pem)).decode(),
        "client-key-data": base64.b64encode(key_pem).decode(),
    }
    async with ApiClient(rewritten(kubeconfig, tmp_path / "certificate", user=user)) as client:
        review = await client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"] == "tester"


async def test_a_token_of_an_exec_plugin_is_asked_for_again_when_it_is_refused(kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("expired")
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    plugin.write_text(
        f'#!/bin/sh\nprintf \'{json.dumps(credential)[:-1]}, "status": {{"token": "%s"}}}}\' "$(cat {token})"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {
            "apiVersion": credential["apiVersion"],
            "command": str(plugin),
            "args": [],
            "interactiveMode": "Never",
        }
    }
    async with ApiClient(rewritten(kubeconfig, tmp_path / "exec", user=user)) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get("/api/v1/pods")
        token.write_text("admin")
        await client.get("/api/v1/pods")


async def test_in_a_pod_the_mounted_token_is_shown_and_its_rotation_noticed(kubeconfig, tmp_path, monkeypatch):
    cluster = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]
    host, port = cluster["server"].removeprefix("https://").split(":")
    (tmp_path / "token").write_text("admin\n")
    (tmp_path / "ca.crt").symlink_to(cluster["certificate-authority"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr("punctual.kube.cluster.access.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setitem(sys.modules, "kubernetes", None)  # as in the image, which does not contain it
    async with ApiClient() as client:
        await client.get("/api/v1/pods")
        client._token = "Bearer rotated-out"  # as the server sees the old one after a rotation
        await asyncio.gather(*(client.get("/api/v1/pods") for _ in range(5)))


async def test_no_configuration_is_said_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.ClusterError, match="no configuration for the API server"):
        async with ApiClient(str(tmp_path / "none")):
            pass


async def test_every_answer_tells_the_servers_time(client):
    assert client.clock.error == float("inf")
    async with asyncio.timeout(60):
        while client.clock.error > 0.6:  # an answer that took long says little
            await client.get("/version")
    before = time.time()
    now = client.clock.now()
    assert before - 0.6 <= now <= time.time() + 0.6

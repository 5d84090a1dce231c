"""The page's server with the rights of a real API server: tokens, roles, TokenReview, SubjectAccessReview."""

import asyncio
import contextlib
import json
import ssl

import aiohttp
import pytest
from shown import Shown

from punctual.kube.agents.ca import service_names
from punctual.kube.agents.ca_store import ClusterCaStore
from punctual.kube.agents.rotation import Rotation
from punctual.kube.page import server as page_server
from punctual.kube.page.model import page
from punctual.kube.page.server import PageServer
from punctual.kube.page.viewers import Viewers

RULES = [{"apiGroups": ["punctual.dev"], "resources": ["divisiblejobs"], "verbs": ["list"]}]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Site:
    """A page's server on both ports. ``mine`` is a namespace of the API server's, ``other`` another one."""

    def __init__(self, client, namespace):
        self.client, self.mine, self.other = client, namespace, f"{namespace}-other"
        self.shown = Shown().pool("main", nodes=2, processors=2)
        self.job = self.shown.job(self.mine, "runs", units=40, most=4, deadline=110.0)
        self.others = self.shown.job(self.other, "waits", units=40, most=4, deadline=230.0)
        self.leads = True
        self.server = PageServer(self.read, Viewers(client))

    def read(self):
        return self.shown.read() if self.leads else None

    async def start(self):
        rotation = Rotation(
            ClusterCaStore(self.client, self.mine), service_names("punctual", self.mine), self.client.clock
        )
        await rotation.tend()
        self.ports = await self.server.start(rotation.context, port=0, loopback_port=0)

    async def token(self, account, *, everywhere=False, rights=True):
        """Create an account that may list the jobs of ``mine``, or of all namespaces; return a token."""
        where = "" if everywhere else f"/namespaces/{self.mine}"
        kind, name = ("ClusterRole" if everywhere else "Role"), f"{self.mine}-{account}"
        await self.client.create(f"/api/v1/namespaces/{self.mine}/serviceaccounts", {"metadata": {"name": account}})
        if rights:
            await self.client.create(f"{RBAC}{where}/{kind.lower()}s", {"metadata": {"name": name}, "rules": RULES})
            subject = {"kind": "ServiceAccount", "name": account, "namespace": self.mine}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
            await self.client.create(f"{RBAC}{where}/{kind.lower()}bindings", binding)
        path = f"/api/v1/namespaces/{self.mine}/serviceaccounts/{account}/token"
        return (await self.client.create(path, {"spec": {"expirationSeconds": 600}}))["status"]["token"]

    @contextlib.asynccontextmanager
    async def ask(self, path, token=None, *, host=None):
        """GET from the port for tokens, or (without one, or for another host's name) from the loopback port."""
        secure, loopback = self.ports
        url = f"https://127.0.0.1:{secure}" if token is not None else f"http://127.0.0.1:{loopback}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Host": host} if host else {}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(url + path, headers=headers, timeout=aiohttp.ClientTimeout(60)) as answer,
        ):
            yield answer

    async def status(self, path, token=None, **more):
        async with self.ask(path, token, **more) as answer:
            return answer.status

    async def first(self, token=None):
        """Return the first event."""
        async with self.ask("/events", token) as answer:
            return await event(answer)


async def event(answer):
    kind = (await answer.content.readline()).decode().strip()
    data = (await answer.content.readline()).decode()
    await answer.content.readline()
    return kind, json.loads(data.removeprefix("data: "))


@pytest.fixture
async def site(client, namespace):
    site = Site(client, namespace)
    await site.start()
    try:
        yield site
    finally:
        await site.server.stop()


async def test_data_need_a_token_that_the_cluster_accepts(site):
    assert await site.status("/", token="") == 200
    for path in ("/events", "/why?job=any"):
        assert await site.status(path, token="") == 401
        assert await site.status(path, token="made-up") == 401


async def test_an_account_sees_the_namespaces_in_which_it_may_list_jobs(site):
    kind, seen = await site.first(await site.token("tenant"))
    assert kind == "event: page"
    assert seen == json.loads(json.dumps(page(site.shown.read(), {site.mine})))
    assert set(seen["jobs"]) == {site.job}
    assert site.other not in json.dumps(seen)

    _, seen = await site.first(await site.token("operator", everywhere=True))
    assert set(seen["jobs"]) == {site.job, site.others}

    _, seen = await site.first(await site.token("stranger", rights=False))
    assert not seen["jobs"]


async def test_why_is_told_of_visible_jobs_only(site):
    token = await site.token("tenant")
    async with site.ask(f"/why?job={site.job}", token) as answer:
        assert answer.status == 200
        assert (await answer.json())["sentences"]
    assert await site.status(f"/why?job={site.others}", token) == 404
    assert await site.status("/why?job=none", token) == 404


async def test_the_loopback_port_needs_no_token_but_its_own_name(site):
    _, seen = await site.first()
    assert set(seen["jobs"]) == {site.job, site.others}
    assert await site.status("/events", host="localhost:8090") == 200
    assert await site.status("/events", host="evil.example") == 403, "a foreign name that points to 127.0.0.1"


async def test_what_changes_follows_the_page(site):
    async with site.ask("/events") as answer:
        await event(answer)
        site.shown.later(5.0)
        new = site.shown.job(site.mine, "new", units=5, deadline=500.0)
        async with asyncio.timeout(60):
            while True:
                kind, changed = await event(answer)
                assert kind == "event: patch"
                if new in changed.get("jobs", {}):
                    break
        site.leads = False
        async with asyncio.timeout(60):
            while await answer.content.readline():
                pass  # until the stream ends
    assert await site.status("/events") == 503


async def test_so_many_pages_at_once_and_no_more_and_of_one_user_fewer(site, monkeypatch):
    monkeypatch.setattr(page_server, "MOST_PAGES", 2)
    monkeypatch.setattr(page_server, "MOST_OF_ONE", 1)
    tenant, other = await site.token("tenant"), await site.token("other")
    async with site.ask("/events", tenant) as first:
        await event(first)
        assert await site.status("/events", tenant) == 503
        async with site.ask("/events", other) as second:
            await event(second)
            assert await site.status("/events") == 503
    async with asyncio.timeout(60):
        while await site.status("/events", tenant) != 200:  # noqa: ASYNC110  the server hears of the end a moment later
            await asyncio.sleep(0.05)


async def test_only_the_documents_own_script_runs(site):
    async with site.ask("/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = await answer.text()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert text.count("<script>") == policy.count("script-src 'sha256-") == 1
    assert "http://" not in text
    assert "https://" not in text, "assets from elsewhere"

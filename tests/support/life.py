"""One life of a job with a faulty server before its operator, and another beside it that knows nothing of it."""

import contextlib

from ports import kept_port
from proxy import Proxy
from replica import Replica
from stage import Stage


@contextlib.asynccontextmanager
async def life(client, kubeconfig, folder, *, page=None, plays=True, job=True):
    """A stage that plays, the proxy before its operators, and a function that starts one.

    ``plays``: there are a kubelet and an agent; ``job``: the job is there at first.
    """
    with kept_port() as port:
        stage = Stage(client, port)
        here = folder / stage.namespace
        here.mkdir()
        replicas = []
        async with Proxy(kubeconfig, here / "kubeconfig", page=page) as proxy:
            proxy.narrow(namespace=stage.namespace, pool=stage.pool, nodes=stage.label)
            await stage.prepare()
            if job:
                await stage.add_job()

            def start(**more):
                replicas.append(Replica(proxy.kubeconfig, stage.namespace, here / "log", **stage.env, **more))
                return replicas[-1]

            try:
                async with stage.running() if plays else contextlib.nullcontext():
                    yield stage, proxy, start
            except BaseException as error:
                if (here / "log").exists():
                    error.add_note((here / "log").read_text())
                error.add_note(stage.told())
                raise
            finally:
                for one in replicas:
                    one.kill()
                    await one.ended()
                await stage.clean()


def told(failed):
    """Return what went wrong in which life, each with its operator's log."""
    return "\n".join(
        line
        for name, error in failed.items()
        for line in (f"===== {name}: {error!r}", *getattr(error, "__notes__", ()))
    )

"""``helm install``, ``upgrade`` and ``uninstall`` with the options of docs/install.md, by Helm's own library.

The library has no ``--no-hooks``. Instead, what the chart has made is deleted by its labels, and so are the
release's Secrets.
"""

import argparse
import subprocess

import helm_python
import yaml

HERE = "deployments,daemonsets,services,secrets,serviceaccounts,networkpolicies,configmaps,poddisruptionbudgets"
EVERYWHERE = "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io"
WHOLE = "clusterroles,clusterrolebindings,priorityclasses"


def values(settings):
    """Return the values of ``--set a.b=c``."""
    found = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        *folders, last = name.split(".")
        node = found
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = text if name.startswith("image.") else yaml.safe_load(text)
    return found


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["install", "upgrade", "uninstall"])
    parser.add_argument("name")
    parser.add_argument("chart", nargs="?")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--set", action="append", default=[])
    for flag in ("wait", "create-namespace", "reuse-values", "no-hooks"):
        parser.add_argument(f"--{flag}", action="store_true")
    asked = parser.parse_args()
    if asked.no_hooks:
        ours = ["-l", f"app.kubernetes.io/instance={asked.name}"]
        secrets = ["secrets", "-l", f"owner=helm,name={asked.name}"]
        for words in (
            [HERE, "-n", asked.namespace, *ours],
            [EVERYWHERE, "-A", *ours],
            [WHOLE, *ours],
            [*secrets, "-n", asked.namespace],
        ):
            subprocess.run(["kubectl", "delete", *words], check=True)
        return
    with helm_python.Config(namespace=asked.namespace) as helm:
        if asked.verb == "uninstall":
            helm.uninstall(asked.name, wait="watcher", timeout=300)
            return
        with helm_python.Chart.load(asked.chart) as chart:
            if asked.verb == "install":
                more = {"create_namespace": asked.create_namespace}
                helm.install(chart, asked.name, values(asked.set), wait="watcher", timeout=300, **more)
            else:
                more = {"reuse_values": asked.reuse_values}
                helm.upgrade(chart, asked.name, values(asked.set), wait="watcher", timeout=300, **more)


if __name__ == "__main__":
    main()

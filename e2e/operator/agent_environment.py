# SPDX-License-Identifier: Apache-2.0
"""What a kubelet gives the agent of a pod, for pods of fake nodes: agents of tests get it as processes."""

import pathlib


def token_of(api, pod):
    """Returns a token that the API server issues for this pod."""
    metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName", "default")
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    return api.request("POST", path, {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": ["ringmaster.dev"], "expirationSeconds": 3600, "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}},
    })["status"]["token"]


def agent_container(pod):
    return next(c for c in pod["spec"]["containers"] if c["name"] == "worker")


def agent_environment(api, pod, folder, token=None):
    """Returns the RINGMASTER_ variables of the pod's own container that have a value, and writes the files that they name to the
    folder: the job's ConfigMap, and the token (default: that of this pod)."""
    worker = agent_container(pod)
    environment = {e["name"]: e["value"] for e in worker["env"] if e["name"].startswith("RINGMASTER_") and "value" in e}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    files = {}
    for mount in worker["volumeMounts"]:
        for source in volumes[mount["name"]].get("projected", {}).get("sources", []):
            if "configMap" in source:
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{source['configMap']['name']}"
                for key, text in api.get(path)["data"].items():
                    files[f"{mount['mountPath']}/{key}"] = text
    for name, value in list(environment.items()):
        if value in files:
            (folder / pathlib.Path(value).name).write_text(files[value])
            environment[name] = str(folder / pathlib.Path(value).name)
    token_file = folder / "token"
    token_file.write_text(token_of(api, pod) if token is None else token)
    environment["RINGMASTER_SECRET_FILE"] = str(token_file)
    environment["RINGMASTER_TERMINATION_LOG"] = str(folder / "last-words")
    return environment

# SPDX-License-Identifier: Apache-2.0
"""The components of a test cluster and their flags. Pure functions of the layout; supervisor.py starts the processes."""

import dataclasses
import ipaddress
import json
import pathlib

import pki

# In start order: each needs the one before it, or none.
COMPONENTS = ("etcd", "apiserver", "kcm", "scheduler", "kwok")

# Kubernetes' own gangs, which are off by default: the feature gates and the version of scheduling.k8s.io, by the version of
# Kubernetes (empty: that of kubekit).
GANGS = {
    "": ("GenericWorkload=true", "v1beta1"),
    "1.36": ("GenericWorkload=true,GangScheduling=true", "v1alpha2"),
    "1.35": ("GenericWorkload=true,GangScheduling=true", "v1alpha1"),
}
SERVERS = ("apiserver", "kcm", "scheduler")  # the components that an older Kubernetes has in a separate binary
SERVICE_CIDR = "10.96.0.0/16"
POD_CIDR = "10.200.0.0/16"
NODE_ADDRESSES = "10.201.0.1"  # address of node-0; nothing listens there

# kwok acts as the kubelet of the nodes with this label. It is a label and not an annotation, because the API server
# filters by labels: kwok drops a node as soon as it loses the label, so a test can stop the kubelet of a node.
KUBELET_LABEL = "e2e.ringmaster.dev/kubelet"


@dataclasses.dataclass
class Options:
    """The options of a cluster. Stored as JSON in its folder."""

    components: list = dataclasses.field(default_factory=lambda: list(COMPONENTS))
    nodes: int = 4
    gpus: int = 8  # nvidia.com/gpu per node
    gpu_nodes: int = 10**9  # the first so many nodes have GPUs
    rdma: dict = dataclasses.field(default_factory=lambda: {"rdma/ib": 8})  # further resources per node
    cpu: str = "128"
    memory: str = "1Ti"
    pods_per_node: int = 110
    # A node whose kubelet is silent for this long becomes Unknown (Kubernetes' default). Nodes write their status four
    # times in this period, so a large value reduces the load of many nodes.
    node_grace_s: int = 50
    # Pods on an unreachable or not ready node are deleted after this time (Kubernetes' default).
    eviction_s: int = 300
    gangs: bool = True  # Kubernetes' own, in the API and in the scheduler
    gang_scheduler: bool = True  # False: only in the API
    without_controllers: tuple = ()  # controllers of kube-controller-manager that do not run
    kubernetes: str = ""  # "1.35" or "1.36": its SERVERS, which `build VERSION` builds, with etcd, kwok and kubectl of kubekit
    apiserver_flags: list = dataclasses.field(default_factory=list)
    address: str = "127.0.0.1"  # of the API server; real nodes need another address than loopback
    pod_cidr: str = POD_CIDR


@dataclasses.dataclass
class Layout:
    """The folder of the cluster and its ports."""

    folder: pathlib.Path
    binary: pathlib.Path
    servers: pathlib.Path  # the binary of SERVERS
    address: str  # of the API server
    etcd_port: int
    etcd_peer_port: int
    apiserver_port: int

    @property
    def pki(self):
        return pki.Pki(self.folder / "pki")

    @property
    def server(self):
        return f"https://{self.address}:{self.apiserver_port}"

    @property
    def etcd(self):
        return f"http://127.0.0.1:{self.etcd_port}"

    def kubeconfig(self, user):
        return self.folder / ("kubeconfig" if user == "admin" else f"pki/{user}.kubeconfig")


# Users whose token is created with the cluster: (file, user name, group).
USERS = (
    ("admin", "admin", "system:masters"),
    ("kcm", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("kwok", "kwok", "system:masters"),
)


def command(name, layout, options):
    """Returns the argv of a component."""
    applet, flags = {"etcd": _etcd, "apiserver": _apiserver, "kcm": _kcm, "scheduler": _scheduler,
                     "kwok": _kwok}[name](layout, options)
    return [str(layout.servers if name in SERVERS else layout.binary), applet, *flags]


def _etcd(layout, _):
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return "etcd", [
        "--name=e2e",
        f"--data-dir={layout.folder}/etcd",
        "--unsafe-no-fsync",  # loses data only when the machine loses power, not when the process is killed
        f"--listen-client-urls={layout.etcd}",
        f"--advertise-client-urls={layout.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e2e={peer}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _apiserver(layout, options):
    keys = layout.pki
    return "kube-apiserver", [
        f"--etcd-servers={layout.etcd}",
        f"--bind-address={options.address}",
        f"--advertise-address={options.address}",
        f"--secure-port={layout.apiserver_port}",
        # A loopback address is not a valid endpoint.
        *(["--endpoint-reconciler-type=none"] if options.address.startswith("127.") else []),
        f"--tls-cert-file={keys.certificate('apiserver')}",
        f"--tls-private-key-file={keys.key('apiserver')}",
        f"--client-ca-file={keys.ca}",
        f"--token-auth-file={keys.folder}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys.folder}/sa.pub",
        f"--service-account-signing-key-file={keys.key('sa')}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=true",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={keys.certificate('apiserver-kubelet')}",
        f"--kubelet-client-key={keys.key('apiserver-kubelet')}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--requestheader-client-ca-file={keys.ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys.certificate('front-proxy')}",
        f"--proxy-client-key-file={keys.key('front-proxy')}",
        *_gangs(options),
        *([f"--runtime-config=scheduling.k8s.io/{GANGS[options.kubernetes][1]}=true"] if options.gangs else []),
        f"--default-not-ready-toleration-seconds={options.eviction_s}",
        f"--default-unreachable-toleration-seconds={options.eviction_s}",
        # Watches end a second after SIGTERM; by default they delay the end by a minute.
        "--shutdown-watch-termination-grace-period=1s",
        *options.apiserver_flags,
    ]


def _kcm(layout, options):
    keys = layout.pki
    return "kube-controller-manager", [
        *_client(layout, "kcm"),
        *_gangs(options),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys.key('sa')}",
        f"--root-ca-file={keys.ca}",
        f"--cluster-signing-cert-file={keys.ca}",
        f"--cluster-signing-key-file={keys.ca_key}",
        "--allocate-node-cidrs=false",
        f"--cluster-cidr={options.pod_cidr}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        # With the default (20/s) its sixty controllers wait for their tokens, and creating the default ServiceAccount
        # takes 8 s.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        f"--node-monitor-period={min(5, max(1, options.node_grace_s // 8))}s",
        f"--node-monitor-grace-period={options.node_grace_s}s",
        "--controllers=" + ",".join(["*", *(f"-{name}" for name in options.without_controllers)]),
    ]


def _scheduler(layout, options):
    return "kube-scheduler", [
        *_client(layout, "scheduler"),
        *(_gangs(options) if options.gang_scheduler else []),
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def _gangs(options):
    return [f"--feature-gates={GANGS[options.kubernetes][0]}"] if options.gangs else []


def _client(layout, user):
    file = layout.kubeconfig(user)
    return [
        f"--kubeconfig={file}", f"--authentication-kubeconfig={file}", f"--authorization-kubeconfig={file}",
        "--secure-port=0",  # no client connects to them
        "--leader-elect=false",
    ]


def _kwok(layout, options):
    return "kwok", [
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={layout.folder}/kwok.yaml",
        f"--config={pathlib.Path(__file__).resolve().parent}/stages.yaml",
        f"--manage-nodes-with-label-selector={KUBELET_LABEL}=running",
        # No leases: a kwok that has just acquired a node's lease misses the pods that are already on the node. It writes
        # the status of the node instead, four times in node_grace_s (the stage node-heartbeat).
        "--node-lease-duration-seconds=0",
        f"--cidr={options.pod_cidr}",
    ]


def kwok_configuration():
    return json.dumps({
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "metadata": {"name": "kwok"},
        # An omitted value is 0 instead of kwok's default. Without workers for podsOnNodeSync, kwok misses the pods that
        # were on a node before its kubelet returned.
        "options": {"podPlayStageParallelism": 16, "nodePlayStageParallelism": 16, "podsOnNodeSyncParallelism": 4},
    }) + "\n"


def node(name, index, options):
    """A fake node. Two nodes share a rack and two racks a zone, by index."""
    address = str(ipaddress.ip_address(NODE_ADDRESSES) + index)
    resources = {"cpu": options.cpu, "memory": options.memory, "ephemeral-storage": "1Ti",
                 "pods": str(options.pods_per_node), **{key: str(count) for key, count in options.rdma.items()}}
    if options.gpus and index < options.gpu_nodes:
        resources["nvidia.com/gpu"] = str(options.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"e2e.ringmaster.dev/heartbeat-ms": str(options.node_grace_s * 250)},
            "labels": {
                KUBELET_LABEL: "running",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "rack": f"rack-{index // 2}",
                "topology.kubernetes.io/zone": f"zone-{index // 4}",
                "topology.kubernetes.io/region": "e2e",
            },
        },
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        },
    }

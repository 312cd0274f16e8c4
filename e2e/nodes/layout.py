# SPDX-License-Identifier: Apache-2.0
"""Options, addresses and configuration files of real nodes. Pure functions."""

import dataclasses
import json

RESOURCES = {"nvidia.com/gpu": 2, "rdma/ib": 2}


@dataclasses.dataclass
class Options:
    """Stored as JSON in the folder of the nodes."""

    nodes: int = 3
    resources: dict = dataclasses.field(default_factory=lambda: dict(RESOURCES))  # devices of each node's device plugin
    images: list = dataclasses.field(default_factory=list)  # image archives, imported on every node
    node_grace_s: int = 8  # time until a silent node becomes Unknown; Kubernetes' default is 50
    eviction_s: int = 300  # time until its pods are deleted; Kubernetes' default
    mtu: int = 1500  # of every link between pods, as on Ethernet
    apiserver_flags: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Addresses:
    """The addresses of one set of nodes. Sets that run at the same time on one machine have different `site`s."""

    site: int

    @property
    def bridge(self):
        """The address on which the control plane and the name server listen."""
        return f"10.99.{self.site}.1"

    @property
    def host(self):
        """The address of this machine on the same bridge."""
        return f"10.99.{self.site}.254"

    @property
    def interface(self):
        """The network interface on this machine, outside of the namespaces."""
        return f"rm-e2e-{self.site}"

    @property
    def pod_cidr(self):
        return f"10.{100 + self.site}.0.0/16"

    def node(self, index):
        return f"10.99.{self.site}.{10 + index}"

    def pods(self, index):
        return f"10.{100 + self.site}.{index}.0/24"


def node_name(index):
    return f"node-{index}"


def kubelet(addresses, options, cgroup_root):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"webhook": {"enabled": True}, "anonymous": {"enabled": False},
                           "x509": {"clientCAFile": "/etc/kubernetes-ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup_root}",  # separate roots, because a kubelet removes pod cgroups that it does not know
        "clusterDNS": [addresses.bridge],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "nodeLeaseDurationSeconds": options.node_grace_s,
        "nodeStatusUpdateFrequency": f"{max(1, options.node_grace_s // 4)}s",
        "oomScoreAdj": 0,
        "resolvConf": "/etc/resolv-pods.conf",
        "syncFrequency": "10s",
    }


def kube_proxy(addresses, name):
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kube-proxy.kubeconfig"},
        "clusterCIDR": addresses.pod_cidr,
        "hostnameOverride": name,
        "mode": "nftables",
        # The kernel does not let a network namespace change these.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def cni(addresses, index, mtu):
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipMasq": False,
             "mtu": mtu,
             "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": addresses.pods(index)}]],
                      "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


CONTAINERD = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def corefile(addresses, kubeconfig):
    return f"""cluster.local:53 {{
    bind {addresses.bridge}
    errors
    ready {addresses.bridge}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig} e2e
        pods insecure
        ttl 5
    }}
}}
"""


def text(thing):
    return json.dumps(thing, indent=1) + "\n"

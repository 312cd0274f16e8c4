// SPDX-License-Identifier: Apache-2.0

// The servers of an older Kubernetes in one static binary: API server, controller manager and scheduler. The first argument
// selects one. etcd, kwok and kubectl of such a cluster are those of kubekit, which is built from the newest Kubernetes.
//
// The files VERSION.mod and VERSION.sum pin the modules of each version; `e2e/cluster/build VERSION` builds it.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones, and a container may have none

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The command is created when its server is selected, because each registers flags and feature gates for the whole process.
var servers = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": kcm.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 || servers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-scheduler FLAGS...")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(cli.Run(servers[os.Args[0]]()))
}

// SPDX-License-Identifier: Apache-2.0

// Kubekit is one static binary with every program of a test cluster. The first argument selects the program
// ("kubekit etcd --data-dir=…"), or the name of the link through which it was started ("kubectl").
//
// One binary replaces eight: the compilation takes as long, but everything is linked once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata" // CronJobs name time zones, and a container may have none

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec credential plugins for kubectl
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Every applet sees os.Args as if it were a separate program.
var applets = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"etcd-compact":            etcdCompact,
	"kwok":                    kwok,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(kcm.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

// The command is created when the applet runs, because each registers flags and feature gates for the whole process.
func component(make func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(make())) }
}

func main() {
	name := filepath.Base(os.Args[0])
	if applets[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run := applets[name]
	if run == nil {
		names := []string{}
		for known := range applets {
			names = append(names, known)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "kubekit: no applet %q; there are: %s\n", name, strings.Join(names, " "))
		os.Exit(2)
	}
	run()
}

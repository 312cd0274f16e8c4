// SPDX-License-Identifier: Apache-2.0

//go:build nodes

// What real nodes need in addition. The control plane does without, and is compiled faster.
package main

import (
	"context"

	"github.com/spf13/cobra"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	applets["kube-proxy"] = component(proxy.NewProxyCommand)
	applets["kubelet"] = component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })
}

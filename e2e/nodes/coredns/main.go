// SPDX-License-Identifier: Apache-2.0

// CoreDNS with the few plugins that a test cluster needs; the full one brings three cloud SDKs along. A module of its
// own, because its dependencies would change those of the Kubernetes components in ../../cluster/kubekit.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a query passes them.
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
	coremain.Run()
}

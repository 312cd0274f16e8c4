// SPDX-License-Identifier: Apache-2.0

// CoreDNS with only the plugins that a test cluster needs; the full one depends on three cloud SDKs. It is a separate
// module, because its dependencies would change those of the Kubernetes components in ../../cluster/kubekit.
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
	// In the order in which they handle a query.
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
	coremain.Run()
}

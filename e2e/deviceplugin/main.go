// SPDX-License-Identifier: Apache-2.0

// Deviceplugin offers fake devices, which kubelets count, allocate and withdraw like real ones.
//
//	deviceplugin --resource nvidia.com/gpu=8 --resource rdma/ib=4 --unhealthy /run/unhealthy
//
// Device I of nvidia.com/gpu has the name gpu-I. A device is unhealthy while the folder --unhealthy has a file with its
// name. A container gets the names of its GPUs in NVIDIA_VISIBLE_DEVICES, and those of other devices in E2E_DEVICES_
// followed by the resource's name in capitals.
package main

import (
	"flag"
	"fmt"
	"log"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// How often the plugin checks health and its socket. A kubelet that starts removes all sockets of its folder without notice.
const lookInterval = 200 * time.Millisecond

type resource struct {
	name  string
	count int
}

type resources []resource

func (r *resources) String() string { return fmt.Sprint(*r) }

func (r *resources) Set(text string) error {
	name, number, found := strings.Cut(text, "=")
	count, err := strconv.Atoi(number)
	if !found || !strings.Contains(name, "/") || err != nil || count < 0 {
		return fmt.Errorf("expected DOMAIN/NAME=COUNT, as in nvidia.com/gpu=8")
	}
	*r = append(*r, resource{name, count})
	return nil
}

func main() {
	var wanted resources
	flag.Var(&wanted, "resource", "DOMAIN/NAME=COUNT; repeatable")
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "where the kubelet's socket is")
	unhealthy := flag.String("unhealthy", "", "folder: a device whose name is a file here is unhealthy")
	flag.Parse()
	if len(wanted) == 0 || flag.NArg() > 0 {
		log.Fatal("deviceplugin: nothing to offer; give --resource DOMAIN/NAME=COUNT, and nothing without a dash")
	}
	for _, offered := range wanted {
		_, short, _ := strings.Cut(offered.name, "/")
		p := newPlugin(offered, short, filepath.Join(*folder, "e2e-"+short+".sock"), *unhealthy)
		go p.run(filepath.Join(*folder, "kubelet.sock"))
	}
	select {}
}

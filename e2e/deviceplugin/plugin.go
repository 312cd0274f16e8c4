// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// One resource: a server on its socket, and the clients that watch its devices.
type plugin struct {
	api.UnimplementedDevicePluginServer
	resource
	short     string
	socket    string
	unhealthy string

	mutex   sync.Mutex
	devices []*api.Device
	changed chan struct{} // closed and replaced with every change
}

func newPlugin(offered resource, short, socket, unhealthy string) *plugin {
	p := &plugin{resource: offered, short: short, socket: socket, unhealthy: unhealthy, changed: make(chan struct{})}
	p.devices = p.look()
	return p
}

// Serves and registers, and repeats both when the kubelet removes the socket. Never returns.
func (p *plugin) run(kubelet string) {
	var server *grpc.Server
	registered := false
	for ; ; time.Sleep(lookInterval) {
		if _, err := os.Stat(p.socket); err != nil {
			if server != nil {
				server.Stop()
			}
			server, registered = p.listen(), false
		}
		if server != nil && !registered {
			registered = p.register(kubelet)
		}
		p.refresh()
	}
}

// Nil until the folder exists, which the kubelet creates when it starts for the first time.
func (p *plugin) listen() *grpc.Server {
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return nil
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	return server
}

func (p *plugin) register(kubelet string) bool {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Printf("%s: %v", p.name, err)
		return false
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(limited, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(p.socket), ResourceName: p.name,
		Options: &api.DevicePluginOptions{},
	})
	if err == nil {
		log.Printf("%s: registered with %d devices", p.name, p.count)
	}
	return err == nil
}

func (p *plugin) look() []*api.Device {
	found := make([]*api.Device, p.count)
	for i := range found {
		found[i] = &api.Device{ID: fmt.Sprintf("%s-%d", p.short, i), Health: api.Healthy}
		if _, err := os.Stat(filepath.Join(p.unhealthy, found[i].ID)); p.unhealthy != "" && err == nil {
			found[i].Health = api.Unhealthy
		}
	}
	return found
}

func (p *plugin) refresh() {
	now := p.look()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, device := range now {
		if device.Health != p.devices[i].Health {
			log.Printf("%s: %s", device.ID, device.Health)
			p.devices = now
			close(p.changed)
			p.changed = make(chan struct{})
			return
		}
	}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		p.mutex.Lock()
		devices, changed := p.devices, p.changed
		p.mutex.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		variable := "E2E_DEVICES_" + strings.ToUpper(p.short)
		if p.name == "nvidia.com/gpu" {
			variable = "NVIDIA_VISIBLE_DEVICES"
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{variable: strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdCompact compacts the whole history ("etcd-compact URL") and prints the revision at which it did so.
//
// From then on the API server answers 410 Gone to a watch that starts at an older revision.
func etcdCompact() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: etcd-compact URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	revision, err := compact(ctx, os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "etcd-compact: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	fmt.Println(revision)
}

func compact(ctx context.Context, url string) (int64, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	// Any read returns the newest revision; the key need not exist.
	answer, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	revision := answer.Header.Revision
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return revision, err
}

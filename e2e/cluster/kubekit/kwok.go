// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// kwok simulates the kubelets of fake nodes.
func kwok() {
	// Kubernetes registers a --version flag of another type in the process; kwok registers its own.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	// The logger and the list of configuration files are needed before the whole command line is parsed, so these few
	// flags are parsed first, and are then added to the command as well.
	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), early)
	ctx, err := config.InitFlags(ctx, early)
	if err == nil {
		command := kwokcmd.NewCommand(ctx)
		command.PersistentFlags().AddFlagSet(early)
		err = command.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		os.Exit(1)
	}
}

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

// kwok plays the kubelets of nodes that do not exist.
func kwok() {
	// Linking Kubernetes in has put a --version of another type among the process's flags, and kwok wants its own.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	// The logger and the list of configuration files are needed before the command line as a whole is understood, so
	// these few flags are read by themselves first, and then become flags of the command as well.
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

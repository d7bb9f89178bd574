// Package command has what the commands of all binaries share: exit codes, wrong usage,
// version, unknown subcommands, output. Its sub-packages have one group of commands each, so
// that a binary links the groups that it needs and nothing else.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/misuse"
)

// Exit codes of every command.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // also for an unknown subcommand
)

// Main runs the command that the process's arguments name below root, and ends the process.
func Main(root *cobra.Command) { os.Exit(Run(root, os.Args[1:], os.Stdout, os.Stderr)) }

// Run runs the command that args name below root, until SIGINT or SIGTERM ends its context,
// and returns its exit code. An error is printed once, after the name of the binary.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	Complete(root, stdout)
	root.SetArgs(args)
	root.SetErr(stderr)
	err := execute(ctx, root, args, stdout)
	if err == nil {
		return ExitOK
	}

	_, _ = fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	if wrong := new(misuse.Error); errors.As(err, &wrong) {
		return ExitUsage
	}
	return ExitFailed
}

// execute runs the command, or tells the nats command of which there are.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == introspect {
		return writePlugin(root, stdout)
	}
	return root.ExecuteContext(ctx)
}

// Complete gives a root command what every binary's has: --version, help, completion, and
// unknown subcommands as wrong usage. What its commands print goes to stdout.
func Complete(root *cobra.Command, stdout io.Writer) {
	info, _ := debug.ReadBuildInfo()
	root.Version = versionText(info)
	root.SilenceErrors, root.SilenceUsage = true, true

	// Cobra would add these when it runs: too late for refuseUnknown. The completion
	// commands keep the output that they find here.
	root.SetOut(stdout)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
}

// Command muster is all of Muster in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootTo(stdout)
	root.SetArgs(args)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintln(stderr, "muster:", err)
	if wrong := new(misuse.Error); errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

var errChecksFailed = errors.New("the scenario's checks did not all hold; see the table above")

func newRoot() *cobra.Command { return newRootTo(os.Stdout) }

func newRootTo(stdout io.Writer) *cobra.Command {
	info, _ := debug.ReadBuildInfo()
	root := &cobra.Command{
		Use:   "muster",
		Short: "Capacity that is verified, keys that are handed over",
		Long: "Muster keeps elastic clusters honest: capacity counts only once it is verified,\n" +
			"and every change of it is a transaction that survives a crash at any point.",
		Version:       versionText(info),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newUp(), newNodes(), newPartitions(), newDefender(), newCollect(), newBroker(), newDoctor(), newRig())
	// Cobra would add these when it runs: too late for refuseUnknown. The completion
	// commands keep the output that they find here.
	root.SetOut(stdout)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
	return root
}

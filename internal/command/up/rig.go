package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/broker"
	"github.com/muster-dev/muster/internal/command/defender"
)

// NewRig has the processes that scenarios start: what runs in production, with hooks that
// only a test needs.
func NewRig() *cobra.Command {
	cmd := &cobra.Command{Use: "rig", Short: "The processes that scenarios start", Hidden: true}
	cmd.AddCommand(newRigDefender(), newRigWorkers(), newRigBroker())
	return cmd
}

func newRigDefender() *cobra.Command {
	var o defender.Runner
	var hooks e2e.DefenderOptions
	var child bool
	cmd := &cobra.Command{
		Use:   "defender",
		Short: "Run one defender whose processing is recorded, and takes longer",
		Args:  command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Check(), command.Unless(hooks.Work >= 0, fmt.Errorf("--work is %v: give 0s or more", hooks.Work))); err != nil {
				return command.UsageError(cmd, err)
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			serving := func(string) error { return nil }
			if child {
				followParent(func() {
					// Without the parent there is no server, and so no worker to hand off to.
					time.AfterFunc(leaveOrphaned, func() { os.Exit(command.ExitFailed) })
					cancel()
				})
				serving = func(at string) error { return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"http": at}) }
			}
			open := func(ctx context.Context, options service.Options) (defender.Running, *service.Defender, error) {
				hooks.Options = options
				d, err := e2e.OpenDefender(ctx, hooks, nil)
				if err != nil {
					return nil, nil, err
				}
				return d, d.Defender, nil
			}
			return o.Run(ctx, cmd, open, serving)
		},
	}
	f := cmd.Flags()
	o.Flags(f)
	f.DurationVar(&hooks.Work, "work", 0, "time added to each message's processing, three times as much when its history is not in memory")
	f.StringVar(&hooks.Record, "record", "", "file in which the start and end of each processing is recorded")
	f.StringVar(&hooks.Ending, "ending", "", "file in which it notes when it was told to stop, with how many slots, and when it had ended")
	f.BoolVar(&child, "child", false, "end when standard input does, and write the HTTP address to standard output")
	return command.WithUsageErrors(cmd)
}

// newRigWorkers runs many workers, which say what they have used whenever standard input has a
// line, and leave when the process is asked to end.
func newRigWorkers() *cobra.Command {
	var o e2e.WorkersOptions
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Run many workers without defenders, whose processing is recorded",
		Args:  command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e2e.RunWorkers(cmd.Context(), o, os.Stdin, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.NATS, "nats", "", "URL of the NATS servers")
	f.IntVar(&o.Workers, "workers", 1, "how many run")
	f.IntVar(&o.Slots, "slots", 0, "as provisioned")
	f.IntVar(&o.Shards, "shards", 1, "as provisioned")
	f.IntVar(&o.Replicas, "replicas", 1, "as provisioned")
	f.IntVar(&o.Pool, "pool", 0, "stable IDs, as provisioned; 0: as many as is the default")
	f.StringVar(&o.Pod, "pod", "", "begins each worker's name for people")
	f.StringVar(&o.Record, "record", "", "file in which the start and end of each processing is recorded")
	f.StringVar(&o.LogFile, "log-file", "", "file of the workers' log")
	f.StringVar(&o.Profile, "cpu-profile", "", "file that a CPU profile is written to")
	f.DurationVar(&o.Work, "work", 0, "time that each message takes")
	return command.WithUsageErrors(cmd)
}

// leaveOrphaned is how long a defender without a parent may take to leave.
const leaveOrphaned = 5 * time.Second

// followParent stops the process when its standard input ends, as it does with the parent.
func followParent(stop func()) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
}

func newRigBroker() *cobra.Command {
	cmd := broker.NewRun()
	cmd.Use, cmd.Short, cmd.Long, cmd.Example = "broker", "Run one NATS server that ends with its parent", "", ""
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		followParent(cancel)
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

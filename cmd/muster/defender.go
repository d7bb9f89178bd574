package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/scenario"
)

func newDefender() *cobra.Command {
	cmd := &cobra.Command{Use: "defender", Short: "Fault detection for process chambers"}
	cmd.AddCommand(newDefenderRun())
	return cmd
}

func newDefenderRun() *cobra.Command {
	var o scenario.DefenderOptions
	var http string
	var child bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one defender until it is interrupted",
		Long: "Run joins the defenders of a NATS server, takes its share of the chambers and\n" +
			"processes their messages. On SIGTERM it hands over what it has and exits with 0.",
		Example: "  muster defender run --nats nats://127.0.0.1:4222 --store /var/lib/muster/fdc.db --http 127.0.0.1:8081",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDefender(cmd, o, http, child)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.NATS, "nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	f.StringVar(&o.Store, "store", "fdc.db", "SQLite file of the results; that of the T-charts lies beside it")
	f.IntVar(&o.Slots, "slots", 1280, "slots that the chambers are divided in, the same for all defenders")
	f.DurationVar(&o.Work, "work", 0, "time added to each message's processing")
	f.StringVar(&o.Pod, "pod", hostname(), "name that the stable ID is claimed for")
	f.StringVar(&o.LogFile, "log-file", "", "file of the log; standard error without it")
	f.BoolVar(&o.Verbose, "verbose", false, "log debug lines, too")
	f.StringVar(&http, "http", "", "address of /health/live, /health/ready, /metrics and /api/v1/status; none without it")
	f.StringVar(&o.Record, "record", "", "file in which the start and end of each processing is recorded")
	f.BoolVar(&child, "child", false, "end when standard input does, and write the HTTP address to standard output")
	_ = f.MarkHidden("record")
	_ = f.MarkHidden("child")
	return withUsageErrors(cmd)
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "defender"
	}
	return h
}

func runDefender(cmd *cobra.Command, o scenario.DefenderOptions, address string, child bool) error {
	if o.Slots < 1 || o.Work < 0 {
		return usageError(cmd, errors.Join(
			unless(o.Slots >= 1, fmt.Errorf("--slots is %d: give at least 1", o.Slots)),
			unless(o.Work >= 0, fmt.Errorf("--work is %v: give 0s or more", o.Work))))
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if child {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			// The parent is gone, and with it the server: nothing to hand over to.
			time.AfterFunc(5*time.Second, func() { os.Exit(exitFailed) })
			cancel()
		}()
	}
	d, err := scenario.OpenDefender(ctx, o, nil)
	if err != nil {
		return err
	}
	if address != "" {
		at, err := scenario.ServeHTTP(context.WithoutCancel(ctx), address, defender.HTTP(d.Worker, d.Registry))
		if err != nil {
			return err
		}
		if child {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"http": at}); err != nil {
				return err
			}
		}
	}
	return d.Run(ctx)
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

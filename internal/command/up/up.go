// Package up has the commands that link the scenarios: up, and the hidden rig that scenarios start processes with.
package up

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/broker"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/local"
)

// request is what the command line of up says.
type request struct {
	options   e2e.Options
	scenario  string // "": none
	report    string // file for the scenario's report; "": none
	tokenFile string // "": the console only shows
}

// New returns the command that runs everything on one machine, and scenarios.
func New() *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine, or play a scenario and check it",
		Long: "Up starts a NATS server, a store, a data collector, a simulated region with a\n" +
			"cluster and the node plane that scales it, and defenders in the cluster's pods,\n" +
			"all in this process and on 127.0.0.1, and processes traces until it is interrupted.\n" +
			"It prints where its console is, and how to look at it and disturb it.\n" +
			"With --scenario it plays one, prints what happens, compares it with what should, and\n" +
			"exits with 0 if all of it holds and 1 if not.\n\n" +
			"Scenarios:\n" + strings.TrimRight(e2e.Describe(), "\n"),
		Example: "  muster up\n" +
			"  muster up --token-file console.token\n" +
			"  muster up --scenario scale-up --report r.json\n" +
			"  muster up --scenario scale-up --case joining-crash --processes\n" +
			"  muster up --scenario rolling-update --case surge\n" +
			"  muster up --scenario broker-outage --servers 3 --replicas 3 --slots 512\n" +
			"  muster up --scenario resharding --case back\n" +
			"  muster up --scenario crash --kills 20\n" +
			"  muster up --scenario leader-and-candidates-crash\n" +
			"  muster up --scenario chaos --minutes 10 --seed 7\n" +
			"  muster up --scenario power-cut --servers 3 --sync default\n" +
			"  muster up --scenario load --chambers 4000 --defenders 45 --rate 3000 --minutes 10\n" +
			"  muster up --scenario crowd --defenders 150\n" +
			"  muster up --scenario load --rate 0 --minutes 2 --points 120000 --chambers 400\n" +
			"  muster up --scenario node-pressure --lab\n" +
			"  muster up --scenario spot-interruption --lab --real-nodes",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	r.scenarioFlags(f)
	r.workerFlags(f)
	r.faultFlags(f)
	r.serverFlags(f)
	r.consoleFlags(f)
	return command.WithUsageErrors(cmd)
}

// scenarioFlags adds the flags of what is played, and how it is told.
func (r *request) scenarioFlags(f *pflag.FlagSet) {
	f.StringVar(&r.scenario, "scenario", "", "play this scenario and exit: "+strings.Join(e2e.Names(), ", "))
	f.StringVar(&r.options.Case, "case", "", "a variant of the scenario: "+e2e.DescribeCases())
	f.StringVar(&r.report, "report", "", "write the scenario's report to this file, as JSON")
	f.BoolVar(&r.options.Busy, "busy", false, "for a machine that does other things, too: wait longer, and tell bounds on time that a scenario breaks as SLOW without failing for them")
	f.BoolVar(&r.options.Verbose, "verbose", false, "write debug lines to the defenders' logs")
	f.StringVar(&r.options.Dir, "dir", "", "keep everything in this directory; without it a temporary one is used and removed")
}

// workerFlags adds the flags of the workers and their load.
func (r *request) workerFlags(f *pflag.FlagSet) {
	f.IntVar(&r.options.Defenders, "defenders", 30, "defenders at the beginning, 1 to 2000 (45 in scenario load, 1000 workers in crowd); above 150 only in scenario crowd")
	f.IntVar(&r.options.Chambers, "chambers", 2400, "chambers (4000 in scenario load)")
	f.IntVar(&r.options.Slots, "slots", 1280, "slots that the chambers are divided in; ownership moves by slots (256 in scenarios resharding, at first, and load)")
	f.IntVar(&r.options.Shards, "shards", 1, "streams that the slots are spread over, a number that divides them, up to 64")
	f.IntVar(&r.options.Rate, "rate", 150, "messages a second in the background; in scenario load those that are measured (3000), 0 for the highest rate that is held")
	f.DurationVar(&r.options.Work, "work", 0, "time added to each message's processing, three times as much when its history is not in memory (400ms in a scenario, 0s in load)")
	f.StringVar(&r.options.Data, "data", "", "directory of trace CSV files to replay; without it traces are generated")
	f.Uint64Var(&r.options.Seed, "seed", 1, "seed of generated traces and of what is drawn at random")
	f.BoolVar(&r.options.Processes, "processes", false, "run each defender as a process of its own")
	f.BoolVar(&r.options.Expect, "expect", true, "let defenders know how many they should be, which ends the stabilization window early; --expect=false waits it out")
	f.IntVar(&r.options.RetryAttempts, "retry-attempts", defender.RetryAttempts, "have defenders dead-letter a message after N failed attempts; until then it is queued for retry. With 0 it is tried without end, and holds up its slot. With 10 or more, scenario chaos has chambers that fail for a while, too")
	f.IntVar(&r.options.Points, "points", 0, "points of each trace in scenario load; 0: as recorded or generated, about 1,900")
	f.BoolVar(&r.options.Lab, "lab", false, "run the defenders' pods on a real Kubernetes control plane, built from the checkout when it is first wanted (some minutes); without a scenario or with "+strings.Join(e2e.OnNodes(), " or "))
	f.StringVar(&r.options.LabKubernetes, "lab-kubernetes", "", "with --lab, the minor version of Kubernetes: "+kubernetes())
	f.Var(&r.options.RealNodes, "real-nodes", "with --lab, boot a machine in namespaces for each node: it joins by its user data, and its kubelet runs the defenders as containers; needs Linux, root, cgroups of version 1 and Debian's packages. With =systemd machines boot by systemd and cloud-init, which takes longer")
	f.Lookup("real-nodes").NoOptDefVal = string(local.RealNodesInit)
}

// kubernetes lists the versions that there are labs of.
func kubernetes() string {
	all := lab.Releases()
	text := all[0].Minor + ", the default"
	for _, r := range all[1:] {
		text += ", or " + r.Minor
	}
	return text
}

// faultFlags adds the flags of what a scenario disturbs.
func (r *request) faultFlags(f *pflag.FlagSet) {
	f.IntVar(&r.options.Kills, "kills", 20, "how many defenders scenario crash kills, one after the other; how often scenario leader-and-candidates-crash kills three together (5); how many power cuts scenario power-cut makes (6)")
	f.BoolVar(&r.options.PowerCuts, "power-cuts", false, "have scenario chaos cut the NATS servers' power, too; needs root, loop devices and --sync always")
	f.StringVar(&r.options.Previous, "previous", "", "muster binary of the version before this one, for scenario mixed-version")
	f.Float64Var(&r.options.Minutes, "minutes", 10, "how long scenario chaos goes on injecting faults and scenario load measures, 0.5 at least")
}

// serverFlags adds the flags of the NATS servers.
func (r *request) serverFlags(f *pflag.FlagSet) {
	f.IntVar(&r.options.NATSPort, "nats-port", 0, "TCP port of the NATS server on 127.0.0.1, 0 for a free one")
	f.Var(&r.options.Sync, "sync", broker.SyncHelp+"; always in scenario power-cut")
	f.StringVar((*string)(&r.options.Ext4Data), "ext4-data", "", "what the servers' file systems journal where their power is cut: journal (all data) or ordered (ext4's default); without it journal for several servers, ordered for one")
	f.BoolVar(&r.options.Accounts, "accounts", false, "give the NATS servers accounts: each part connects as the user of its role, with the permissions of deploy/kubernetes/nats and a password of this run")
	f.IntVar(&r.options.Servers, "servers", 1, "NATS servers: 1, or a cluster of 3 or 5, with --processes each in a process of its own")
	f.IntVar(&r.options.Replicas, "replicas", 1, "replicas of streams and buckets: 1, 3 or 5, at most as many as servers")
}

// consoleFlags adds the flags of the console.
func (r *request) consoleFlags(f *pflag.FlagSet) {
	f.StringVar(&r.options.HTTP, "http", "", "address of the console and of the metrics; 127.0.0.1:8080 without a scenario, none with one; \"\" for none")
	f.StringVar(&r.tokenFile, "token-file", "", "file with a token: a person who gives it on the console may drain workers, pause scaling and acknowledge alarms; without it the console only shows")
}

// run plays the scenario, or runs everything until it is interrupted.
func (r *request) run(cmd *cobra.Command) error {
	r.options.Out = cmd.OutOrStdout()
	if r.scenario == "" && !cmd.Flags().Changed("http") {
		r.options.HTTP = "127.0.0.1:8080"
	}
	if r.tokenFile != "" {
		var err error
		if r.options.Token, err = readToken(r.tokenFile); err == nil && r.options.HTTP == "" {
			err = errors.New("--token-file is for the console, and there is none without --http")
		}
		if err != nil {
			return command.UsageError(cmd, err)
		}
	}
	if r.scenario == "" {
		return r.runAlone(cmd)
	}
	if !cmd.Flags().Changed("work") {
		r.options.Work = 400 * time.Millisecond
	}
	e2e.Suit(r.scenario, &r.options, cmd.Flags().Changed)
	return play(cmd, r.scenario, r.report, r.options)
}

// runAlone runs everything without a scenario. It rejects the flags that go with one.
func (r *request) runAlone(cmd *cobra.Command) error {
	if r.report != "" || r.options.Case != "" {
		return command.UsageError(cmd, errors.New("--report and --case go with --scenario"))
	}
	if r.options.PowerCuts {
		return command.UsageError(cmd, errors.New("--power-cuts goes with --scenario chaos"))
	}
	if r.options.Ext4Data != "" {
		return command.UsageError(cmd, errors.New("--ext4-data goes with --scenario power-cut, or chaos with --power-cuts"))
	}
	if r.options.Defenders > e2e.MostDefenders {
		return command.UsageError(cmd, fmt.Errorf("--defenders is %d: more than %d only with --scenario crowd", r.options.Defenders, e2e.MostDefenders))
	}
	if err := r.options.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	return local.Up(cmd.Context(), r.options.Options, e2e.Working(r.options.Work))
}

// minToken is how many characters a token has at least: what is shorter can be tried out.
const minToken = 16

// readToken reads a console's token. It comes from a file, so that neither the list of processes nor the shell's history shows it.
func readToken(name string) (string, error) {
	const how = "make one with: (umask 077; head -c 24 /dev/urandom | base64 > FILE)"
	b, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w: %s", err, how)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--token-file: %s holds no token, which is %d or more characters in one word: %s", name, minToken, how)
	}
	return token, nil
}

var errChecksFailed = errors.New("the scenario's checks did not all hold; see the table above")

func play(cmd *cobra.Command, name, report string, o e2e.Options) error {
	if err := e2e.CheckOptions(name, o); err != nil {
		return err
	}
	if report != "" {
		// Now, not after minutes of work.
		f, err := os.OpenFile(report, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return command.UsageError(cmd, fmt.Errorf("--report: %w: name a file that can be written", err))
		}
		_ = f.Close()
	}
	r, err := e2e.Run(cmd.Context(), name, o)
	if r != nil {
		r.WriteTable(cmd.OutOrStdout())
		if report != "" {
			if werr := r.WriteFile(report); werr != nil && err == nil {
				err = werr
			}
		}
	}
	if err != nil {
		return err
	}
	if !r.OK() && (!o.Busy || !r.Kept()) {
		return errChecksFailed
	}
	return nil
}

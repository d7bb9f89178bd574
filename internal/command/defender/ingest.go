package defender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/internal/misuse"
)

// ingester is how `muster defender ingest` was asked to run.
type ingester struct {
	nats, store, http, tokens string
	maxMiB, atOnce            int
	mapping                   map[string]*string
}

func newIngest() *cobra.Command {
	o := ingester{mapping: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "ingest",
		Short: "Take traces of runs from other programs, over HTTP and NATS",
		Long: "Ingest takes the trace of a run as CSV, JSON, Parquet or Arrow IPC: by HTTP as\n" +
			"POST " + ingest.Path + "?chamber=TOOL:CHAMBER&run=NAME&..., by NATS as a request to " + ingest.Subject + ".\n" +
			"It answers when the T-chart is stored and its completion message is published.\n" +
			"The same run with the same content is answered again; with other content it is\n" +
			"refused. The flags that end in -column say what columns hold where a request\n" +
			"doesn't." + cassandraHelp(),
		Example: "  muster defender ingest --store fdc.db\n" +
			"  muster defender ingest --http 0.0.0.0:8090 --token-file tokens --time-column ts --step-column step\n" +
			"  curl --data-binary @run.parquet -H 'Content-Type: application/vnd.apache.parquet' \\\n" +
			"      'http://127.0.0.1:8090/ingest?chamber=etch01:chamber2&run=lot7.wafer-12&recipe=etch'",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return command.UsageError(cmd, err)
			}
			return o.run(cmd.Context(), cmd)
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &o.nats)
	f.StringVar(&o.store, "store", "fdc.db", storeUsage)
	f.StringVar(&o.http, "http", "127.0.0.1:8090", "address of POST "+ingest.Path)
	f.StringVar(&o.tokens, "token-file", "", "file of bearer tokens, one per line, read again for each request; needed where the address is no loopback")
	f.IntVar(&o.maxMiB, "max-mib", 64, "largest table as it is sent, in MiB")
	f.IntVar(&o.atOnce, "at-once", 4, "runs that are taken at a time; others are told to send again (429)")
	for _, name := range ingest.Mappings() {
		o.mapping[name] = f.String(name, "", mappingUsage(name))
	}
	return command.WithUsageErrors(cmd)
}

func mappingUsage(name string) string {
	switch name {
	case "time-unit":
		return "unit of times that are numbers: s, ms, us or ns (default s)"
	case "ignore-columns":
		return "columns that are no sensors, with commas between"
	case "time-column":
		return "column with the time of the sample (default Time)"
	case "step-column":
		return "column with the recipe step (default Step Number); - if there is none"
	case "sensor-column", "value-column":
		return "column with the " + strings.TrimSuffix(name, "-column") + " where a table has a row for each value"
	}
	return "column with the " + strings.TrimSuffix(name, "-column") + ", where a request doesn't say it"
}

// check returns everything that is wrong with the options, by the flags' names.
func (o *ingester) check() error {
	// What a request has to say is left out of the check of its defaults.
	asked := url.Values{"chamber": {"a:b"}, "run": {"c"}}
	_, mapping := ingest.ParseRequest(asked, o.defaults())
	tokens := ingest.Access{File: o.tokens}.Check()
	if tokens != nil {
		tokens = fmt.Errorf("--token-file: %w", tokens)
	}
	return errors.Join(
		misuse.Within("max-mib", o.maxMiB, 1, 1024),
		misuse.Within("at-once", o.atOnce, 1, 1024),
		checkListen(o.http, o.tokens), tokens, mapping,
		connect.Check(o.store, os.LookupEnv))
}

// checkListen returns what is wrong with an address: others than this machine's programs need
// a token.
func checkListen(address, tokens string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--http %q is no address: write host:port, as 127.0.0.1:8090", address)
	}
	loopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	if !loopback && tokens == "" {
		return fmt.Errorf("--http %s can be reached from other machines: give --token-file, or an address on 127.0.0.1", address)
	}
	return nil
}

func (o *ingester) defaults() url.Values {
	v := url.Values{}
	for name, value := range o.mapping {
		if *value != "" {
			v.Set(name, *value)
		}
	}
	return v
}

// run takes runs until ctx ends.
func (o *ingester) run(ctx context.Context, cmd *cobra.Command) error {
	in, err := openIntake(ctx, o.nats, "muster defender ingest", o.store)
	if err != nil {
		return err
	}
	defer in.close()

	i := ingest.New(ingest.Config{Store: in.store, Publisher: ingest.Through(in.collector), Defaults: o.defaults(),
		MaxBytes: int64(o.maxMiB) << 20, AtOnce: o.atOnce})
	at, err := listen.HTTP(ctx, o.http, i.Handler(ingest.Access{File: o.tokens}))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "taking runs at http://%s%s and on subject %s\n", at, ingest.Path, ingest.Subject)
	return i.Serve(ctx, in.nc)
}

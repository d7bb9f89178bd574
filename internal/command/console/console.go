// Package console has the command that serves the console of what runs elsewhere.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/deployed"
	"github.com/muster-dev/muster/defender"
	stores "github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/command"
	nodecommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/internal/listen"
	nodeplane "github.com/muster-dev/muster/nodes/connect"
)

// flags are what the command is given.
type flags struct {
	nats          string
	groups        []string
	store, nodes  string
	http          string
	hosts         []string
	tokens, audit string
	proxies       []string
	userHeader    string
	roleHeader    string
	operators     string
}

// New returns the command.
func New() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the console of running groups, their store and their node plane",
		Long: "Console shows what runs elsewhere: the workers of a group by its NATS servers, the\n" +
			"defenders' results by their store, the node plane by its record and event log. It is\n" +
			"read-only, and a user of the role viewer is enough for it (muster broker accounts).\n" +
			"A source that is away is shown as it was, with since when. A restart loses nothing.\n\n" +
			"Without --token-file and --proxy it serves this machine only, and everybody on it may\n" +
			"read. With them people are viewers or operators. An operator drains workers and\n" +
			"acknowledges alarms and failed workers; that needs --audit, and the NATS role console.",
		Example: "  muster console --nats nats://10.0.0.5:4222 --store /var/lib/muster/results.sqlite\n" +
			"  muster console --group defender --group orders --nodes /var/lib/muster/nodes\n" +
			"  muster console --http :8443 --host console.fab2.example --token-file console.tokens --audit console.audit",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	s := command.WithUsageErrors(cmd).Flags()
	s.SortFlags = false
	command.NATSFlag(s, &f.nats)
	s.StringSliceVar(&f.groups, "group", []string{defender.Group}, "group of workers to show; may be repeated: each has a console of its own")
	s.StringVar(&f.store, "store", "", "SQLite file of the defenders' results, opened for reading; or \"cassandra\", which the environment describes")
	s.StringVar(&f.nodes, "nodes", "", "directory of the node plane's record and event log; or \"dynamodb\", whose tables the environment names (STATE_TABLE, LOGS_TABLE)")
	s.StringVar(&f.http, "http", "127.0.0.1:8080", "address to serve on; one that other machines reach needs --token-file or --proxy")
	s.StringSliceVar(&f.hosts, "host", nil, "name by which people ask for the console, beside addresses and localhost; may be repeated")
	s.StringVar(&f.tokens, "token-file", "", "file of people, a line each: ROLE NAME TOKEN, where ROLE is viewer or operator")
	s.StringSliceVar(&f.proxies, "proxy", nil, "address or network of a trusted proxy that signs people in; may be repeated")
	s.StringVar(&f.userHeader, "proxy-user-header", "X-Forwarded-User", "header in which the proxy names the person")
	s.StringVar(&f.roleHeader, "proxy-role-header", "X-Forwarded-Groups", "header in which the proxy lists the person's groups, with commas between them")
	s.StringVar(&f.operators, "proxy-operators", "", "group whose members are operators; all others are viewers")
	s.StringVar(&f.audit, "audit", "", "file that keeps what operators do, a line of JSON each; needed if there is an operator")
	return cmd
}

// run serves the consoles until the command's context ends.
func (f flags) run(cmd *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return command.UsageError(cmd, err)
	}
	defer o.NATS.Close()
	if o.Audit != nil {
		defer func() { _ = o.Audit.Close() }()
	}
	c, err := deployed.New(o)
	if err != nil {
		return err
	}
	at, err := listen.HTTP(cmd.Context(), f.http, c.Handler())
	if err != nil {
		return command.UsageError(cmd, err)
	}
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "Console: http://%s\n", at)
	c.Run(cmd.Context())
	return nil
}

// options returns what the flags ask for. Its error lists all that is wrong; then nothing is left open.
func (f flags) options() (deployed.Options, error) {
	o := deployed.Options{Groups: f.groups, Hosts: f.hosts}
	var errs []error
	wrong := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	wrong("--group", deployed.CheckGroups(f.groups))
	wrong("--store", f.showStore(&o))
	wrong("--nodes", f.showNodes(&o))
	users, err := f.users()
	errs = append(errs, err)
	o.Users = users
	wrong("--http", f.checkAddress(users != nil))
	wrong("--audit", f.openAudit(&o))

	nc, err := access.ConnectLater(f.nats, "muster console")
	wrong("--nats", err)
	o.NATS = nc
	if err := errors.Join(errs...); err != nil {
		if nc != nil {
			nc.Close()
		}
		if o.Audit != nil {
			_ = o.Audit.Close()
		}
		return o, err
	}
	return o, nil
}

// showStore has the store shown. One that is away is no wrong usage; a path that can be none is.
func (f flags) showStore(o *deployed.Options) error {
	if f.store == "" {
		return nil
	}
	o.StoreName = "results in " + f.store
	o.Store = func(ctx context.Context) (defender.Store, error) {
		return stores.OpenReader(ctx, f.store, os.LookupEnv)
	}
	var errs []error
	if !slices.Contains(f.groups, defender.Group) {
		errs = append(errs, fmt.Errorf("it is of the group %s, which --group doesn't name: leave it out, or name that group", defender.Group))
	}
	if f.store == stores.Cassandra {
		return errors.Join(append(errs, stores.Check(f.store, os.LookupEnv))...)
	}
	if info, err := os.Stat(f.store); err == nil && info.IsDir() {
		errs = append(errs, fmt.Errorf("%s is a directory: name a file", f.store))
	}
	return errors.Join(errs...)
}

// dynamoDB is what --nodes says of tables.
const dynamoDB = "dynamodb"

// showNodes has the node plane shown.
func (f flags) showNodes(o *deployed.Options) error {
	if f.nodes == "" {
		return nil
	}
	lookup := os.LookupEnv
	o.NodesName = "node plane in DynamoDB"
	if f.nodes != dynamoDB {
		o.NodesName = "node plane in " + f.nodes
		if info, err := os.Stat(f.nodes); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is a file: name the directory of the record and the event log", f.nodes)
		}
		lookup = func(name string) (string, bool) {
			switch name {
			case "DIR":
				return f.nodes, true
			case "STATE_TABLE", "LOGS_TABLE":
				return "", false
			}
			return os.LookupEnv(name)
		}
	}
	s, err := nodeplane.ParseStore(lookup)
	if err != nil {
		return err
	}
	if f.nodes == dynamoDB && s.Policy.StateTable == "" {
		return errors.New("STATE_TABLE is not set: set STATE_TABLE and LOGS_TABLE to the tables' names")
	}
	o.Nodes = func(ctx context.Context) (*nodeplane.Stores, error) {
		return nodeplane.FindStores(ctx, s, nodeplane.Options{Local: nodecommand.LocalStore()})
	}
	return nil
}

// users returns who may use the console, nil for everybody on this machine.
func (f flags) users() (*console.Users, error) {
	if f.tokens == "" && len(f.proxies) == 0 {
		if f.operators != "" {
			return nil, errors.New("--proxy-operators is for --proxy: name the proxy's address, or leave it out")
		}
		return nil, nil
	}
	var errs []error
	u := &console.Users{}
	if f.tokens != "" {
		text, err := os.ReadFile(f.tokens)
		if err == nil {
			u.Tokens, err = console.ParseTokens(string(text))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--token-file: %s: %w", f.tokens, err))
		}
	}
	u.Proxy = console.Proxy{UserHeader: f.userHeader, RoleHeader: f.roleHeader, Operators: f.operators}
	for _, text := range f.proxies {
		p, err := network(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--proxy is %q: give an address or a network, as 10.0.0.7 or 10.0.0.0/24", text))
		}
		u.Proxy.From = append(u.Proxy.From, p)
	}
	if len(f.proxies) == 0 {
		u.Proxy = console.Proxy{}
		if f.operators != "" {
			errs = append(errs, errors.New("--proxy-operators is for --proxy: name the proxy's address, or leave it out"))
		}
	} else if strings.TrimSpace(f.userHeader) == "" {
		errs = append(errs, errors.New("--proxy-user-header is empty: name the header in which the proxy names the person"))
	}
	return u, errors.Join(errs...)
}

// network reads an address or a network.
func network(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// checkAddress refuses to show everything to every machine.
func (f flags) checkAddress(guarded bool) error {
	host, _, err := net.SplitHostPort(f.http)
	if err != nil {
		return fmt.Errorf("it is %q: give host:port, as 127.0.0.1:8080", f.http)
	}
	ip := net.ParseIP(host)
	if own := host == "localhost" || ip != nil && ip.IsLoopback(); own || guarded {
		return nil
	}
	return fmt.Errorf("%s is reached by other machines: give --token-file or --proxy, or serve on 127.0.0.1", f.http)
}

// openAudit opens the audit file. Nobody may act without it.
func (f flags) openAudit(o *deployed.Options) error {
	if f.audit == "" {
		if o.Users != nil && o.Users.HasOperator() {
			return errors.New("it is not given, and there is an operator: name the file that keeps what operators do")
		}
		return nil
	}
	a, err := deployed.OpenAudit(f.audit)
	o.Audit = a
	return err
}

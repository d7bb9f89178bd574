package workers

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/setting"
)

// Config says where the workers are found.
type Config struct {
	URL        string // of NATS servers, with commas between; "": there are no workers to ask
	Group      string // partition.Config.Name of the workers
	Deployment string // namespace/name of their Deployment, "" if its replicas are not to be followed
}

var settings = []setting.Setting[Config]{
	setting.New("WORKERS_NATS_URL", "", "NATS servers of the workers that share keys, with commas between; without it nodes are drained without asking workers to hand over first. NATS_CREDS, NATS_CA and others say who connects",
		setting.Text(func(c *Config) *string { return &c.URL })),
	setting.New("WORKERS_GROUP", "defender", "name of the workers' group", setting.Text(func(c *Config) *string { return &c.Group })),
	setting.New("WORKERS_DEPLOYMENT", "", "namespace/name of the workers' Deployment; its replicas are told to the workers as the expected number, by the daemon only",
		setting.Text(func(c *Config) *string { return &c.Deployment })),
}

// Settings lists the settings of this package.
func Settings() []setting.Info { return setting.Describe(settings) }

// ConfigFromEnv reads the settings. The error is nil or a *setting.Error that lists all that is wrong.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	var c Config
	err := setting.Parse(&c, settings, lookup, Config.problems)
	return c, err
}

func (c Config) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	for _, u := range strings.FieldsFunc(c.URL, func(r rune) bool { return r == ',' }) {
		u = strings.TrimSpace(u)
		scheme, rest, ok := strings.Cut(u, "://")
		check(ok && rest != "" && (scheme == "nats" || scheme == "tls" || scheme == "ws" || scheme == "wss"), "WORKERS_NATS_URL", c.URL, "write servers such as nats://nats.fdc:4222 or tls://..., with commas between")
	}
	check(c.Group != "" && !strings.ContainsAny(c.Group, " .*>/\\"), "WORKERS_GROUP", c.Group, "use letters, digits and dashes")
	if c.Deployment != "" {
		namespace, name, ok := strings.Cut(c.Deployment, "/")
		check(ok && namespace != "" && name != "" && !strings.Contains(name, "/"), "WORKERS_DEPLOYMENT", c.Deployment, "write namespace/name")
		check(c.URL != "", "WORKERS_DEPLOYMENT", c.Deployment, "set WORKERS_NATS_URL, too: the workers are told through it")
	}
	return out
}

// Open returns the workers that c describes, nil if it names no servers, and what closes the connection. Servers that can't be reached
// now are tried again and again: until then what is asked of the workers is an error, which a drain outlasts.
func Open(c Config) (*Plane, func() error, error) {
	if c.URL == "" {
		return nil, func() error { return nil }, nil
	}
	options, err := access.Options(os.LookupEnv)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the workers' NATS servers at %s: %w", c.URL, err)
	}
	options = append(options, nats.Name("muster nodes"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.RetryOnFailedConnect(true),
		nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))
	nc, err := nats.Connect(c.URL, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the workers' NATS servers at %s: %w", c.URL, err)
	}
	return New(nc, c.Group), func() error { nc.Close(); return nil }, nil
}

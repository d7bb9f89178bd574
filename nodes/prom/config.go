package prom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Config says how to reach Prometheus and what to ask it.
type Config struct {
	URL      string        // of the server, with a path prefix if it has one
	TokenRef string        // reference to a bearer token, "" for none
	BasicRef string        // reference to USER:PASSWORD, "" for none
	CARef    string        // reference to the PEM of the CA that signed the server's certificate; "": the system's
	Timeout  time.Duration // for everything that one tick asks

	MaxAge         time.Duration // a newest sample older than this is stale
	Step           time.Duration // between the points of a sustained form
	Rate           time.Duration // window of the rate of CPU time
	WorkerSelector string        // more label matchers of the workers' node-exporter series
	StateSelector  string        // more label matchers of kube-state-metrics' series
	InstanceLabel  string        // label that names the machine: an address, with or without port, or the node's name
	Queries        Queries

	// Fetch reads references of other kinds than file:PATH, such as those to a parameter or secret of the cloud; nil if there are
	// none.
	Fetch func(ctx context.Context, ref string) (string, error)
	Clock nodes.Clock // nil: nodes.SystemClock
}

// settings is the one list of names, defaults and meanings; help, documentation and parsing all read it.
var settings = append([]setting.Setting[Config]{
	setting.New("PROMETHEUS_URL", "", "URL of Prometheus, for example http://prometheus.monitoring:9090", setting.URL(func(c *Config) *string { return &c.URL })),
	setting.New("PROMETHEUS_TOKEN_REF", "", "where the bearer token is, for example file:/etc/muster/prometheus-token; it is read again when it is replaced", setting.Text(func(c *Config) *string { return &c.TokenRef })),
	setting.New("PROMETHEUS_BASIC_AUTH_REF", "", "where USER:PASSWORD is, for example file:/etc/muster/prometheus-login", setting.Text(func(c *Config) *string { return &c.BasicRef })),
	setting.New("PROMETHEUS_CA_REF", "", "where the PEM of the server's CA is; without it the system's are trusted", setting.Text(func(c *Config) *string { return &c.CARef })),
	setting.New("PROMETHEUS_TIMEOUT_SEC", "10", "most time for everything that one tick asks", setting.Seconds(func(c *Config) *time.Duration { return &c.Timeout })),
	setting.New("PROMETHEUS_MAX_AGE_SEC", "120", "samples older than this are stale", setting.Seconds(func(c *Config) *time.Duration { return &c.MaxAge })),
	setting.New("PROMETHEUS_STEP_SEC", "15", "between the points of a sustained form", setting.Seconds(func(c *Config) *time.Duration { return &c.Step })),
	setting.New("PROMETHEUS_RATE_SEC", "300", "window of the rate of CPU time", setting.Seconds(func(c *Config) *time.Duration { return &c.Rate })),
	setting.New("WORKER_SELECTOR", "", `more label matchers of the workers' node-exporter series, for example job="node-exporter"`, setting.Text(func(c *Config) *string { return &c.WorkerSelector })),
	setting.New("STATE_METRICS_SELECTOR", "", `more label matchers of kube-state-metrics' series, for example cluster="east"`, setting.Text(func(c *Config) *string { return &c.StateSelector })),
	setting.New("INSTANCE_LABEL", "instance", "label of node-exporter series that names the machine: its address or its node's name", setting.Text(func(c *Config) *string { return &c.InstanceLabel })),
},
	query(queryState, defaultStateMetrics, "time of kube-state-metrics' newest scrape; nothing while it is down"),
	query(queryNodes, defaultNodes, "by node and internal_ip: 1 if Ready"),
	query(queryControl, defaultControlPlane, "by node: the control plane"),
	query(queryUnsched, defaultUnsched, "pods that could not be scheduled"),
	query(queryPhase, defaultPhase, "pods in phase Pending"),
	query(queryPendingMin, defaultPendingMin, "minimum of the driving count over PENDING_UP_SEC"),
	query(queryPendingMax, defaultPendingMax, "its maximum over IDLE_DOWN_SEC"),
	query(queryCPUWorkers, defaultCPUWorkers, "by machine: time of its newest sample"),
	query(queryCPU, defaultCPU, "average utilisation of the workers, 0..1"),
	query(queryCPUMin, defaultCPUMin, "its minimum over CPU_UP_SEC"),
	query(queryCPUMax, defaultCPUMax, "its maximum over IDLE_DOWN_SEC"),
)

func query(n name, byDefault, meaning string) setting.Setting[Config] {
	return setting.New(string(n), byDefault, "query: "+meaning, setting.Text(func(c *Config) *string { return c.Queries.text(n) }))
}

// Settings lists every setting in the order in which documentation shows them.
func Settings() []setting.Info { return setting.Describe(settings) }

// DefaultConfig returns the documented defaults; only the URL has none.
func DefaultConfig() Config {
	var c Config
	if err := setting.Parse(&c, settings, func(string) (string, bool) { return "", false }, nil); err != nil {
		panic(err) // without values there are none that can't be read
	}
	return c
}

// ConfigFromEnv reads the settings from the environment that lookup stands for; what is unset keeps its default. The error is a
// *setting.Error that lists everything that is wrong, queries that are no PromQL included.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	var c Config
	err := setting.Parse(&c, settings, lookup, Config.problems)
	return c, err
}

// Validate returns nil or a *setting.Error that lists everything that is wrong with c, each with its fix.
func (c Config) Validate() error { return setting.Problems(c.problems(), nil) }

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// problems checks c as a whole; each check stands alone so that one mistake never hides another.
func (c Config) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	positive := func(env string, d time.Duration) {
		check(d > 0, env, fmt.Sprint(int64(d/time.Second)), "use a whole number of seconds above 0")
	}
	u, err := url.Parse(c.URL)
	check(c.URL != "" && err == nil, "PROMETHEUS_URL", c.URL, "name the Prometheus server, for example http://prometheus.monitoring:9090; SIGNALS=kubernetes needs none")
	check(err != nil || u.User == nil, "PROMETHEUS_URL", "(not shown)", "leave user and password out of the URL: name a file that has them by PROMETHEUS_BASIC_AUTH_REF")
	for _, r := range []struct{ env, ref string }{{"PROMETHEUS_TOKEN_REF", c.TokenRef}, {"PROMETHEUS_BASIC_AUTH_REF", c.BasicRef}, {"PROMETHEUS_CA_REF", c.CARef}} {
		kind, rest, ok := strings.Cut(r.ref, ":")
		known := ok && rest != "" && (kind == "file" || kind == "ssm" || kind == "secretsmanager")
		check(r.ref == "" || known, r.env, "(not shown)", "write a reference, such as file:PATH or ssm:NAME, not the thing itself")
	}
	check(c.TokenRef == "" || c.BasicRef == "", "PROMETHEUS_BASIC_AUTH_REF", "(not shown)", "set either this or PROMETHEUS_TOKEN_REF: a request has one Authorization header")
	positive("PROMETHEUS_TIMEOUT_SEC", c.Timeout)
	positive("PROMETHEUS_MAX_AGE_SEC", c.MaxAge)
	positive("PROMETHEUS_STEP_SEC", c.Step)
	positive("PROMETHEUS_RATE_SEC", c.Rate)
	check(labelName.MatchString(c.InstanceLabel), "INSTANCE_LABEL", c.InstanceLabel, "write the name of a label, for example instance")
	for env, selector := range map[string]*string{"WORKER_SELECTOR": &c.WorkerSelector, "STATE_METRICS_SELECTOR": &c.StateSelector} {
		if parse("up{"+matchers(*selector)+"}") != "" {
			check(false, env, *selector, `write label matchers as they stand between braces, for example job="node-exporter",cluster="east"`)
			*selector = "" // or every query would be complained about as well
		}
	}
	if !labelName.MatchString(c.InstanceLabel) {
		c.InstanceLabel = "instance"
	}
	c.Step, c.Rate = cmp.Or(max(c.Step, 0), time.Minute), cmp.Or(max(c.Rate, 0), time.Minute)
	defaults := DefaultConfig()
	for _, n := range []name{queryState, queryCPU, queryUnsched, queryPhase, queryNodes, queryControl, queryCPUWorkers, queryCPUMin, queryCPUMax, queryPendingMin, queryPendingMax} {
		if why := c.checkQuery(n); why != "" {
			check(false, string(n), *c.Queries.text(n), why)
			*c.Queries.text(n) = *defaults.Queries.text(n) // or those that contain it would be complained about as well
		}
	}
	return out
}

// fetch reads what a reference names.
func (c Config) fetch(ctx context.Context, ref string) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		b, err := os.ReadFile(path)
		return string(b), err
	}
	if c.Fetch == nil {
		return "", errors.New("only file:PATH is understood here")
	}
	return c.Fetch(ctx, ref)
}

// scope is what the placeholders stand for at one time.
type scope struct {
	workers string // label matchers, each followed by a comma
	pending nodes.PendingSource
	windows map[name]time.Duration
}

// expand returns the text of a query with its placeholders replaced.
func (c *Config) expand(n name, s scope) string {
	return placeholder.ReplaceAllStringFunc(*c.Queries.text(n), func(p string) string {
		if !slices.Contains(mayUse(n), p) {
			return p // refused when the settings are read
		}
		switch p {
		case "$instance":
			return c.InstanceLabel
		case "$workers":
			return s.workers
		case "$kube":
			return matchers(c.StateSelector)
		case "$rate":
			return promDuration(c.Rate)
		case "$step":
			return promDuration(c.stepFor(s.windows[n]))
		case "$window":
			return promDuration(s.windows[n])
		case "$points":
			return strconv.Itoa(c.points(s.windows[n]))
		case "$cpu":
			return c.expand(queryCPU, s)
		case "$machines":
			return c.expand(queryCPUWorkers, s)
		case "$state":
			return c.expand(queryState, s)
		case "$age":
			return strconv.FormatFloat(c.MaxAge.Seconds(), 'f', -1, 64)
		}
		return c.expand(driving(s.pending), s) // $pending
	})
}

// stepFor is the step of a subquery; a window shorter than it is looked at once.
func (c *Config) stepFor(window time.Duration) time.Duration {
	if window > 0 {
		return min(c.Step, window)
	}
	return c.Step
}

// points is how many points a subquery over a window has at least: its steps are at multiples of the step since 1970, so that a
// window that is no multiple of it may have one more.
func (c *Config) points(window time.Duration) int { return int(window / c.stepFor(window)) }

// exclude returns matchers that leave out machines, which the exporter may know by address, with or without port, or by name.
func (c *Config) exclude(machines []machine) string {
	var parts []string
	for _, m := range machines {
		for _, s := range []string{m.ip, m.node} {
			if s != "" {
				parts = append(parts, regexp.QuoteMeta(s))
			}
		}
	}
	out := matchers(c.WorkerSelector)
	if len(parts) > 0 {
		out += c.InstanceLabel + "!~" + strconv.Quote("("+strings.Join(parts, "|")+")(:[0-9]+)?") + ","
	}
	return out
}

// checkQuery returns what is wrong with the text of a query, "" if nothing is.
func (c *Config) checkQuery(n name) string {
	text := strings.TrimSpace(*c.Queries.text(n))
	if text == "" {
		return "write a query, or leave it unset for the default"
	}
	for _, p := range placeholder.FindAllString(text, -1) {
		if !slices.Contains(mayUse(n), p) {
			return fmt.Sprintf("%s is no placeholder here; there are %s", p, strings.Join(mayUse(n), ", "))
		}
	}
	s := scope{workers: c.exclude([]machine{{"node", "10.0.0.1"}}), windows: map[name]time.Duration{}}
	for _, n := range allQueries {
		s.windows[n] = 10 * time.Minute
	}
	return parse(c.expand(n, s))
}

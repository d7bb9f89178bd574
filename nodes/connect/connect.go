package connect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/setting"
)

// Settings is everything that a node plane is put together from.
type Settings struct {
	Policy nodes.Policy
	Local  Local
	AWS    AWS
	Tables dynamo.Config
	EC2    ec2.Config
	Kube   kube.Config
	Prom   prom.Config // unused with SIGNALS=kubernetes
	// WithoutEffect are the settings that are set and mean nothing with SIGNALS=kubernetes.
	WithoutEffect []string
}

// byAPI reports whether the node plane has no Prometheus.
func (s Settings) byAPI() bool { return s.Policy.Signals == nodes.SignalsKubernetes }

// Local is what is kept on this machine.
type Local struct {
	Dir string // of the SQLite file; unused with DynamoDB tables
}

var onDisk = []setting.Setting[Local]{
	setting.New("DIR", "", "directory of the record and the event log, a SQLite file, when there are no tables; "+
		"default: muster/nodes in $XDG_STATE_HOME or ~/.local/state",
		setting.Text(func(l *Local) *string { return &l.Dir })),
}

// AWS is what all clients of AWS have in common. The rest, credentials above all, comes from where the AWS SDK finds it.
type AWS struct {
	Region   string // "": as the SDK finds it
	Endpoint string // of DynamoDB; "": AWS's
}

// sdk are settings of the AWS SDK that the adapters read, too, so that they can be in a file and be given as flags.
var sdk = []setting.Setting[AWS]{
	setting.New("AWS_REGION", "", "region; default as the AWS SDK finds it", setting.Text(func(a *AWS) *string { return &a.Region })),
	setting.New("AWS_ENDPOINT_URL", "", "URL of all AWS services, instead of AWS's own; _EC2, _PRICING, _SSM, _SECRETS_MANAGER, _SQS, _STS and _DYNAMODB after it name one service's",
		setting.URL(func(a *AWS) *string { return &a.Endpoint })),
	setting.New("AWS_ENDPOINT_URL_DYNAMODB", "", "URL of DynamoDB", setting.URL(func(a *AWS) *string { return &a.Endpoint })),
}

// Group is the settings of one part.
type Group struct {
	Name     string // for headings
	Settings []setting.Info
}

// Groups lists every setting by part, in the order in which documentation shows them. The first is the policy, which decisions
// depend on.
func Groups() []Group {
	endpoints := setting.Describe(sdk)
	for _, service := range []string{"EC2", "PRICING", "SSM", "SECRETS_MANAGER", "SQS", "STS"} {
		endpoints = append(endpoints, setting.Info{Env: "AWS_ENDPOINT_URL_" + service, Meaning: "URL of this service"})
	}
	return []Group{
		{"Policy", nodes.Settings()},
		{"Record and event log", append(setting.Describe(onDisk), dynamo.Settings()...)},
		{"EC2", ec2.Settings()},
		{"Kubernetes", kube.Settings()},
		{"Prometheus", prom.Settings()},
		{"AWS", endpoints},
	}
}

// StoreNames are the settings by which the record and the event log are found.
func StoreNames() []string {
	return []string{"CLUSTER", "STATE_TABLE", "LOGS_TABLE", "DIR", "AWS_REGION", "AWS_ENDPOINT_URL"}
}

// Known lists the names of all settings of the groups.
func Known(groups []Group) []string {
	var out []string
	for _, g := range groups {
		for _, i := range g.Settings {
			if !slices.Contains(out, i.Env) {
				out = append(out, i.Env)
			}
		}
	}
	return out
}

// Parse reads every setting. The error is nil or a *setting.Error that lists all that is wrong in any part.
func Parse(lookup setting.Lookup) (Settings, error) {
	s, storeErr := ParseStore(lookup)
	var errs [3]error
	s.EC2, errs[0] = ec2.ConfigFromEnv(lookup)
	s.Kube, errs[1] = kube.ConfigFromEnv(lookup)
	if s.byAPI() {
		s.WithoutEffect = withoutEffect(lookup)
	} else {
		s.Prom, errs[2] = prom.ConfigFromEnv(lookup)
	}
	return s, setting.Join(storeErr, errs[0], errs[1], errs[2])
}

// withoutEffect lists the settings that are set although only what is read of Prometheus gives them a meaning.
func withoutEffect(lookup setting.Lookup) []string {
	names := nodes.WithoutEffect()
	for _, i := range prom.Settings() {
		names = append(names, i.Env)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		v, _ := lookup(name)
		return v == ""
	})
}

// ParseStore reads the policy and what openStores needs, for those who neither launch nor drain.
func ParseStore(lookup setting.Lookup) (Settings, error) {
	var s Settings
	var errs [5]error
	s.Policy, errs[0] = nodes.PolicyFromEnv(lookup)
	errs[1] = setting.Parse(&s.Local, onDisk, lookup, nil)
	errs[2] = setting.Parse(&s.AWS, sdk, lookup, nil)
	s.Tables, errs[3] = dynamo.ConfigFromEnv(lookup)
	s.Tables = s.Tables.For(s.Policy)
	if s.Policy.StateTable != "" && s.Policy.LogsTable != "" && errs[3] == nil {
		errs[4] = s.Tables.Validate()
	}
	if s.Local.Dir == "" {
		s.Local.Dir = defaultDir()
	}
	return s, setting.Join(errs[:]...)
}

// defaultDir is where programs keep what has to survive a restart, by the XDG base directory specification.
func defaultDir() string {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return filepath.Join(os.TempDir(), "muster", "nodes") // no home: a container, whose directory is set anyhow
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "muster", "nodes")
}

// closers are what has been opened.
type closers []func() error

// Close closes it, what was opened last first.
func (c closers) Close() error {
	var errs []error
	for _, f := range slices.Backward(c) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func opening(what string, err error) error { return fmt.Errorf("opening %s: %w", what, err) }

package dynamo

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/muster-dev/muster/internal/awsbody"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Config says where a cluster's items are.
type Config struct {
	Cluster    string // the policy's
	StateTable string // the policy's
	LogsTable  string // the policy's
	KeepDays   int    // days after which an event expires

	// Now is the clock by which deadlines are judged and events expire; nil means time.Now.
	Now func() time.Time
}

var settings = []setting.Setting[Config]{
	setting.New("LOGS_KEEP_DAYS", "30", "days after which the event log's events expire", setting.Int(func(c *Config) *int { return &c.KeepDays })),
}

// Settings lists this package's own settings; the tables are the policy's.
func Settings() []setting.Info { return setting.Describe(settings) }

// ConfigFromEnv reads this package's own settings; For adds what the policy has. The error is a *setting.Error.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	var c Config
	err := setting.Parse(&c, settings, lookup, func(c Config) []setting.Problem { return c.keepProblems() })
	return c, err
}

// For returns the configuration with the policy's cluster and tables.
func (c Config) For(p nodes.Policy) Config {
	c.Cluster, c.StateTable, c.LogsTable = p.Cluster, p.StateTable, p.LogsTable
	return c
}

// Validate returns nil or a *setting.Error that lists everything that is wrong with c.
func (c Config) Validate() error {
	out := c.keepProblems()
	for _, t := range []struct{ env, name string }{{"STATE_TABLE", c.StateTable}, {"LOGS_TABLE", c.LogsTable}} {
		if !tableName.MatchString(t.name) {
			out = append(out, setting.Problem{Setting: t.env, Value: t.name, Fix: "name a DynamoDB table: 3 to 255 letters, digits, dots, dashes and underscores"})
		}
	}
	if c.StateTable == c.LogsTable && c.StateTable != "" {
		out = append(out, setting.Problem{Setting: "LOGS_TABLE", Value: c.LogsTable, Fix: "name another table than STATE_TABLE: their keys differ"})
	}
	return setting.Problems(out, nil)
}

func (c Config) keepProblems() []setting.Problem {
	if c.KeepDays >= 1 && c.KeepDays <= 3650 {
		return nil
	}
	return []setting.Problem{{Setting: "LOGS_KEEP_DAYS", Value: fmt.Sprint(c.KeepDays), Fix: "use 1 to 3650 days"}}
}

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// DB is the two tables of a cluster. Its Store and its EventLog may be used by several goroutines.
type DB struct {
	cfg    Config
	region string
	api    *dynamodb.Client
}

// New returns the tables that cfg names, reached by the given AWS configuration. Options change the client after this package has
// set what it relies on. The error is a *setting.Error.
func New(ac aws.Config, cfg Config, options ...func(*dynamodb.Options)) (*DB, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	api := dynamodb.NewFromConfig(ac, func(o *dynamodb.Options) {
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts, r.MaxBackoff = 4, time.Second })
		o.APIOptions = append(o.APIOptions, awsbody.AddReadOnly, inTime(cfg.Now))
		for _, f := range options {
			f(o)
		}
	})
	return &DB{cfg: cfg, region: ac.Region, api: api}, nil
}

// inTime refuses to send a request whose deadline has passed. The context alone does not do that: in a process that was stopped and
// goes on, its timer may not have fired yet. It is the last step of every attempt, so that it judges retries too.
func inTime(now func() time.Time) func(*middleware.Stack) error {
	check := middleware.FinalizeMiddlewareFunc("InTime", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		err := ctx.Err()
		if deadline, ok := ctx.Deadline(); err == nil && ok && !now().Before(deadline) {
			err = context.DeadlineExceeded
		}
		if err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, &aws.RequestCanceledError{Err: err}
		}
		return next.HandleFinalize(ctx, in)
	})
	return func(s *middleware.Stack) error { return s.Finalize.Add(check, middleware.After) }
}

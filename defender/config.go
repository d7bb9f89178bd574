package defender

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender/uchart"
)

// Judge concludes on a chart from the chamber's earlier ones. It is a pure
// function: judging again gives the same verdict.
type Judge func(history []uchart.Point, chart *uchart.Chart) uchart.Verdict

// Strategies concludes like [Judge], by what applies to the context.
type Strategies interface {
	Judge(ref ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict
}

// Config says how a Defender works. Store, Conn and one of Judge and Strategies are
// required; zero values of the others stand for the defaults named with each field.
// CacheBytes and Turns bound what a defender takes of its machine, MaxPoints what it takes on, and
// Processed, Logger and Metrics tell what it does.
type Config struct {
	// Store keeps everything; required.
	Store Store
	// Conn carries alarms; required.
	Conn *nats.Conn
	// Replicas is how many replicas the stream of alarms has when Provision makes it;
	// default 1.
	Replicas int
	// Judge concludes on charts; required unless Strategies is set.
	Judge Judge
	// Strategies concludes on charts by the strategy of chamber and recipe, in place
	// of Judge.
	Strategies Strategies
	// ClearAfter returns how many contexts in a row that aren't flagged clear the
	// alarm of a chamber and recipe; default 3.
	ClearAfter func(ContextRef) int
	// History is how many earlier contexts a verdict rests on; default 100.
	History int
	// CacheBytes is about how much memory the histories of chambers may take; default
	// 512 MiB.
	CacheBytes int64
	// MaxPoints is the largest T-chart that is worked on, in rows times columns, time
	// and step counted as columns; larger ones are dead letters. Default 8,388,608.
	MaxPoints int
	// Retention is how long U-charts are kept; default 365 days.
	Retention time.Duration
	// Turns has room for as many T-charts as are decoded and judged at a time; those
	// beyond wait. With more of them at work than there are processors they would
	// only take these from each other, and from what renews the defender's lease.
	// Several defenders in one process are given the same. Default: room for as many
	// as Go uses processors.
	Turns chan struct{}
	// Processed, if set, is told of each context that was stored.
	Processed func(Processed)
	// Version is the build's, for the log. Default: as Go's build information has it.
	Version string
	// Logger gets the log lines; default none.
	Logger *slog.Logger
	// Metrics counts; default: not counted.
	Metrics *Metrics
}

// validate reports every fault of the configuration.
func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("no Store is given"))
	}
	if c.Conn == nil {
		errs = append(errs, errors.New("no Conn is given"))
	}
	if c.Judge == nil && c.Strategies == nil {
		errs = append(errs, errors.New("no Judge and no Strategies are given"))
	}
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("field CacheBytes is %d, want 0 for the default or more", c.CacheBytes))
	}
	if c.MaxPoints < 0 {
		errs = append(errs, fmt.Errorf("field MaxPoints is %d, want 0 for the default or more", c.MaxPoints))
	}
	if c.Turns != nil && cap(c.Turns) == 0 {
		errs = append(errs, errors.New("field Turns has no room: give a channel with a buffer, or none"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("defender: the configuration has faults:\n%w", err)
	}
	return nil
}

// withDefaults returns the configuration with the values that the zero ones stand for.
func (c Config) withDefaults() Config {
	c.History = cmp.Or(c.History, 100)
	c.CacheBytes = cmp.Or(c.CacheBytes, 512<<20)
	c.MaxPoints = cmp.Or(c.MaxPoints, 1<<23)
	c.Retention = cmp.Or(c.Retention, 365*24*time.Hour)
	if c.Turns == nil {
		c.Turns = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	if c.ClearAfter == nil {
		c.ClearAfter = func(ContextRef) int { return 3 }
	}
	if c.Strategies == nil {
		c.Strategies = oneJudge{c.Judge}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Version == "" {
		c.Version = buildVersion()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

// oneJudge is the Strategies of a defender that judges every context alike.
type oneJudge struct{ judge Judge }

// Judge implements Strategies.
func (o oneJudge) Judge(_ ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	return o.judge(history, chart)
}

// buildVersion returns the version of the program's main module, "(devel)" for one
// that was built from a checkout without version control information.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

package lambda

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Function is what a function is for.
type Function string

// The functions. Two are better than one: a failed tick is not repeated, because the next comes within a minute; an interruption is.
const (
	Tick          Function = "tick"
	Interruptions Function = "interruptions"
	Both          Function = "both"
)

// Config says what a Handler does.
type Config struct {
	Function Function
	Margin   time.Duration // work ends this long before Lambda's own deadline

	Clock nodes.Clock  // nil: SystemClock
	Log   *slog.Logger // nil: slog's default
}

var settings = []setting.Setting[Config]{
	setting.New("MUSTER_FUNCTION", string(Both), "what this function handles: tick, interruptions or both", func(c *Config, v string) error { c.Function = Function(v); return nil }),
	setting.New("LAMBDA_MARGIN_SEC", "5", "work ends this long before the function's timeout", setting.Seconds(func(c *Config) *time.Duration { return &c.Margin })),
}

// Settings lists the settings of this package in the order in which documentation shows them.
func Settings() []setting.Info { return setting.Describe(settings) }

// ConfigFromEnv reads the settings from the environment that lookup stands for. The error is a *setting.Error that lists everything
// that is wrong.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	var c Config
	err := setting.Parse(&c, settings, lookup, Config.problems)
	return c, err
}

func (c Config) problems() []setting.Problem {
	var out []setting.Problem
	if c.Function != Tick && c.Function != Interruptions && c.Function != Both {
		out = append(out, setting.Problem{Setting: "MUSTER_FUNCTION", Value: string(c.Function), Fix: "use tick, interruptions or both"})
	}
	if c.Margin < time.Second || c.Margin > 5*time.Minute {
		out = append(out, setting.Problem{Setting: "LAMBDA_MARGIN_SEC", Value: fmt.Sprint(int64(c.Margin / time.Second)), Fix: "use 1 to 300 seconds, well below the function's timeout"})
	}
	return out
}

package nodes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Config is what a Reconciler works with: the policy, the five systems around it, all of them required (but for
// Signals with SIGNALS=kubernetes), and optional parts. With another Sizer, Fitter, Appraiser or Screener decisions are made otherwise; Clock, NewID,
// TickBudget and Stopping let tests and Lambda functions control time, names and the end of a process.
type Config struct {
	Policy   Policy
	Signals  Signals
	Cloud    Cloud
	Cluster  Cluster
	Store    Store
	EventLog EventLog

	WorkerPlane WorkerPlane // nil: the nodes carry no workers that want to know
	// EvictionRequester asks pods through the cluster, before WorkerPlane is asked; nil: the cluster can't.
	EvictionRequester EvictionRequester
	// Statuses reads status checks of instances; nil: none is repaired for a failed one.
	Statuses StatusReader
	Reporter Reporter // nil: decisions are in the event log alone
	Clock    Clock    // nil: SystemClock
	Template Template // what new instances boot from
	// Templates is that of each pool, by its name; unused without pools.
	Templates map[string]Template
	Sizer     Sizer         // nil: PodsPerNode; required by SizingFit
	Fitter    Fitter        // nil: RequestsFit
	Appraiser Appraiser     // nil: CONSOLIDATION knows no prices and replaces no worker
	Pricer    Pricer        // nil: prices are the Sizer's and the Appraiser's own
	Screener  Screener      // nil: only pods that the Cluster itself says never fit are taken not to
	NewID     func() string // unique short strings; nil: random
	// Holder names what at most one process can be at a time, such as an address that only one can listen on.
	// A process takes the claims that an earlier one of the same name has left behind, instead of waiting
	// until they expire. "": it takes none.
	Holder string

	self       identity
	TickBudget time.Duration // after which a tick begins nothing new; 0: 50 s
	Stopping   func() bool   // true once the process is about to end: a tick then begins nothing new; nil: never
}

// validate reports what is missing or wrong.
func (c *Config) validate() error {
	if c.Signals == nil && !c.Policy.byAPI() || c.Cloud == nil || c.Cluster == nil || c.Store == nil || c.EventLog == nil {
		return errors.New("a reconciler needs Signals, Cloud, Cluster, Store and EventLog")
	}
	if err := c.Policy.Validate(); err != nil {
		return err
	}
	if c.Policy.Sizing == SizingFit && c.Sizer == nil {
		return errors.New("SIZING=fit needs a Sizer that packs pods")
	}
	return c.validatePools()
}

// validatePools reports what is missing for the pools of the policy.
func (c *Config) validatePools() error {
	if len(c.Policy.Pools) == 0 {
		return nil
	}
	if _, ok := c.Sizer.(PoolSizer); !ok {
		return errors.New("pools need a PoolSizer, which knows which pods the nodes of a pool would run")
	}
	for _, name := range c.Policy.PoolNames() {
		if _, ok := c.Templates[name]; !ok {
			return fmt.Errorf("pool %s has no template among Templates", name)
		}
	}
	return nil
}

// template returns what new instances of a pool boot from; "" stands for a cluster without pools.
func (c *Config) template(pool string) Template {
	if pool == "" {
		return c.Template
	}
	return c.Templates[pool]
}

// templateHash identifies what new instances of a pool are launched by: their template, labels and taints.
func (c *Config) templateHash(pool string) string {
	return fingerprint(c.template(pool), c.Policy.In(pool))
}

// TemplateHashes returns what identifies the template, labels and taints of new nodes, by pool; without pools, by "".
func (c *Config) TemplateHashes() map[string]string {
	out := map[string]string{}
	for _, name := range c.Policy.PoolNames() {
		out[name] = c.templateHash(name)
	}
	if len(out) == 0 {
		out[""] = c.templateHash("")
	}
	return out
}

// size tells what a type has, for the limits of pools; nil without pools.
func (c *Config) size() func(string) (Resources, bool) {
	if s, ok := c.Sizer.(PoolSizer); ok {
		return s.Size
	}
	return nil
}

// setDefaults fills in what a zero field stands for. Sizer, Fitter, Appraiser and Screener stay nil: the decision has
// defaults of its own.
func (c *Config) setDefaults() {
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	if c.NewID == nil {
		c.NewID = func() string { return rand.Text()[:12] }
	}
	if c.TickBudget == 0 {
		c.TickBudget = tickBudget
	}
	if c.Holder != "" {
		c.self = identity{holder: c.Holder, process: c.NewID()}
	}
}

func (c *Config) stopping() bool { return c.Stopping != nil && c.Stopping() }

// identity is a process as its claims name it.
type identity struct{ holder, process string }

package strategy

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema of strategy files.
func Schema() []byte { return slices.Clone(schema) }

// maxBytes is how large a strategy file may be.
const maxBytes = 1 << 20

// File is a strategy file.
type File struct {
	Schema     int        `json:"schema"`
	Version    int        `json:"version"`
	Strategies []Strategy `json:"strategies"`
	Webhooks   []Webhook  `json:"webhooks,omitempty"`
}

// Strategy is the rules for the runs it matches.
type Strategy struct {
	Name         string       `json:"name"`
	Match        Match        `json:"match"`
	Exclude      []string     `json:"exclude,omitempty"` // patterns of SVIDs; see [uchart.Policy]
	Univariate   Univariate   `json:"univariate"`
	Multivariate Multivariate `json:"multivariate"`
	Alarm        AlarmRules   `json:"alarm"`
}

// Match selects runs by patterns with * and ?; empty ones match all.
type Match struct {
	Chamber string `json:"chamber,omitempty"` // of "tool:chamber"
	Recipe  string `json:"recipe,omitempty"`
}

// Univariate says how single charts are judged; see [uchart.Policy]. Zero values
// stand for the defaults of the schema.
type Univariate struct {
	Enabled     *bool              `json:"enabled,omitempty"`
	FalseAlarms float64            `json:"false_alarms,omitempty"`
	MinHistory  int                `json:"min_history,omitempty"`
	Window      int                `json:"window,omitempty"`
	Statistics  []uchart.Statistic `json:"statistics,omitempty"`
	Limits      string             `json:"limits,omitempty"` // Frozen or Moving
	PhaseI      PhaseI             `json:"phase1"`
	EWMA        *EWMA              `json:"ewma,omitempty"`
	CUSUM       *CUSUM             `json:"cusum,omitempty"`
	Rules       *Rules             `json:"rules,omitempty"`
}

// The kinds of limits; see [uchart.FrozenPolicy].
const (
	Frozen = "frozen"
	Moving = "moving"
)

// PhaseI says how limits are frozen.
type PhaseI struct {
	Runs     int     `json:"runs,omitempty"`
	Outliers float64 `json:"outliers,omitempty"`
}

// EWMA says how moving averages are judged; see [uchart.EWMAPolicy].
type EWMA struct {
	Lambda     float64            `json:"lambda"`
	L          float64            `json:"l,omitempty"`
	Statistics []uchart.Statistic `json:"statistics,omitempty"`
	SVIDs      []string           `json:"svids,omitempty"`
}

// CUSUM says how cumulative sums are judged; see [uchart.CUSUMPolicy].
type CUSUM struct {
	K          float64            `json:"k"`
	H          float64            `json:"h,omitempty"`
	Statistics []uchart.Statistic `json:"statistics,omitempty"`
	SVIDs      []string           `json:"svids,omitempty"`
}

// Rules says which run rules apply, by the names of package spc.
type Rules struct {
	Names      []string           `json:"names"`
	Statistics []uchart.Statistic `json:"statistics,omitempty"`
	SVIDs      []string           `json:"svids,omitempty"`
}

// Multivariate says how all charts are judged together; see
// [uchart.MultivariatePolicy]. Zero values stand for the defaults of the schema.
type Multivariate struct {
	Enabled     *bool              `json:"enabled,omitempty"`
	FalseAlarms float64            `json:"false_alarms,omitempty"`
	MinHistory  int                `json:"min_history,omitempty"`
	Window      int                `json:"window,omitempty"`
	Statistics  []uchart.Statistic `json:"statistics,omitempty"`
	Variance    float64            `json:"variance,omitempty"`
	Reference   int                `json:"reference,omitempty"`
	Refit       int                `json:"refit,omitempty"`
	Bound       float64            `json:"bound,omitempty"`
}

// AlarmRules says when a standing alarm ends and which webhooks are told.
type AlarmRules struct {
	ClearAfter int      `json:"clear_after,omitempty"`
	Webhooks   []string `json:"webhooks,omitempty"`
}

// Webhook is a place that alarms are posted to.
type Webhook struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	SecretEnv string `json:"secret_env,omitempty"`
	Tries     int    `json:"tries,omitempty"`
}

// The defaults.
const (
	defaultFalseAlarms = 0.005 // of each kind of chart, so 1 % together
	defaultClearAfter  = 3
	defaultTries       = 5
	// Frozen limits rest on half of the history, since estimates from few values keep
	// their error: for individuals charts 300 are advised (Quesenberry, Journal of
	// Quality Technology 25, 1993).
	defaultPhaseI = 50
	// A variable that is far out by itself is for single charts to find. Where they judge, T²
	// and Q are for what many variables say together.
	defaultBound = 3.5
)

// Default returns what applies without a file.
func Default() *Set {
	set, err := Parse([]byte("schema: 1\nversion: 1\nstrategies: [{name: default}]\n"), "the default strategy")
	if err != nil {
		panic(err) // shown not to happen by the package's tests
	}
	return set
}

// Faults is the error of a strategy file, one line for each fault.
type Faults struct {
	Name string // of the file
	List []string
}

func (f *Faults) Error() string {
	return fmt.Sprintf("%s has %d faults:\n  %s", f.Name, len(f.List), strings.Join(f.List, "\n  "))
}

// Load reads a file; see [Parse].
func Load(name string) (*Set, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading strategies: %w", err)
	}
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("reading strategies: %s has %d bytes, at most %d are allowed", name, info.Size(), maxBytes)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading strategies: %w", err)
	}
	return Parse(data, name)
}

// Parse reads and checks strategies in YAML or JSON. The name is for messages. An
// error that is not of syntax is a [*Faults] with all that is wrong.
func Parse(data []byte, name string) (*Set, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, &Faults{Name: name, List: []string{strings.TrimPrefix(err.Error(), "yaml: ")}}
	}
	faults, err := check(asJSON)
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", name, err)
	}
	var f File
	if len(faults) == 0 {
		if err := yaml.UnmarshalStrict(data, &f); err != nil {
			faults = append(faults, err.Error())
		}
		faults = append(faults, f.check()...)
	}
	if len(faults) > 0 {
		return nil, &Faults{Name: name, List: faults}
	}
	return newSet(f), nil
}

// check validates by the schema and returns each fault with its place.
func check(asJSON []byte) ([]string, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return nil, err
	}
	const at = "defense-strategies.json"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(at, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(at)
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	if err != nil {
		return nil, err
	}
	err = s.Validate(value)
	if err == nil {
		return nil, nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	var faults []string
	leaves(invalid, func(e *jsonschema.ValidationError) {
		place := "/" + strings.Join(e.InstanceLocation, "/")
		what := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
			what = fmt.Sprintf("unknown field %s: see the schema for those there are", strings.Join(extra.Properties, ", "))
		}
		faults = append(faults, place+": "+what)
	})
	slices.Sort(faults)
	return slices.Compact(faults), nil
}

func leaves(e *jsonschema.ValidationError, each func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		each(e)
	}
	for _, cause := range e.Causes {
		leaves(cause, each)
	}
}

// check returns the faults that a schema can't express.
func (f *File) check() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	hooks := map[string]bool{}
	for i, w := range f.Webhooks {
		if hooks[w.Name] {
			fault("/webhooks/%d/name: %q is there twice: give each its own name", i, w.Name)
		}
		hooks[w.Name] = true
	}
	names := map[string]bool{}
	for i, s := range f.Strategies {
		at := fmt.Sprintf("/strategies/%d", i)
		if names[s.Name] {
			fault("%s/name: %q is there twice: give each its own name", at, s.Name)
		}
		names[s.Name] = true
		faults = append(faults, s.checkPatterns(at)...)
		if u := s.Univariate; u.Window > 0 && u.Window < or(u.MinHistory, 10) {
			fault("%s/univariate/window: %d runs are fewer than min_history %d: raise it", at, u.Window, or(u.MinHistory, 10))
		}
		faults = append(faults, s.Univariate.check(at+"/univariate")...)
		if m := s.Multivariate; m.Window > 0 && m.Window < or(m.MinHistory, 20) {
			fault("%s/multivariate/window: %d runs are fewer than min_history %d: raise it", at, m.Window, or(m.MinHistory, 20))
		}
		if m := s.Multivariate; or(m.Window, 50)+m.Reference > 100 {
			fault("%s/multivariate/reference: window and reference are %d runs together, the history has 100: lower one", at, or(m.Window, 50)+m.Reference)
		}
		if !on(s.Univariate.Enabled) && !on(s.Multivariate.Enabled) {
			fault("%s: neither univariate nor multivariate charts are enabled: enable one", at)
		}
		for k, hook := range s.Alarm.Webhooks {
			if !hooks[hook] {
				fault("%s/alarm/webhooks/%d: there is no webhook %q: add it under webhooks", at, k, hook)
			}
		}
		for _, earlier := range f.Strategies[:i] {
			if matches(earlier.Match.Chamber, "") && matches(earlier.Match.Recipe, "") {
				fault("%s: it never applies, since %q before it matches everything: put it first", at, earlier.Name)
				break
			}
		}
	}
	return faults
}

// checkPatterns returns the faults of what selects runs and excludes sensors.
func (s *Strategy) checkPatterns(at string) []string {
	patterns := map[string]string{"match/chamber": s.Match.Chamber, "match/recipe": s.Match.Recipe}
	for i, pattern := range s.Exclude {
		patterns[fmt.Sprintf("exclude/%d", i)] = pattern
	}
	var faults []string
	for field, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			faults = append(faults, fmt.Sprintf("%s/%s: %q is no pattern: use letters, * and ?", at, field, pattern))
		}
	}
	slices.Sort(faults)
	return faults
}

// check returns the faults of frozen limits and what goes with them.
func (u *Univariate) check(at string) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, at+fmt.Sprintf(format, args...)) }
	if runs := u.PhaseI.Runs; runs > 0 && runs < or(u.MinHistory, 10) {
		fault("/phase1/runs: %d runs are fewer than min_history %d: raise it", runs, or(u.MinHistory, 10))
	}
	for field, c := range map[string]struct {
		set   bool
		svids []string
	}{
		"phase1": {u.PhaseI != PhaseI{}, nil},
		"ewma":   {u.EWMA != nil, u.EWMA.svids()}, "cusum": {u.CUSUM != nil, u.CUSUM.svids()}, "rules": {u.Rules != nil, u.Rules.svids()},
	} {
		if c.set && u.Limits == Moving {
			fault("/%s: it needs frozen limits, and limits are moving: choose one", field)
		}
		for i, pattern := range c.svids {
			if _, err := path.Match(pattern, ""); err != nil {
				fault("/%s/svids/%d: %q is no pattern: use letters, * and ?", field, i, pattern)
			}
		}
	}
	slices.Sort(faults)
	return faults
}

func (e *EWMA) svids() []string {
	if e == nil {
		return nil
	}
	return e.SVIDs
}

func (c *CUSUM) svids() []string {
	if c == nil {
		return nil
	}
	return c.SVIDs
}

func (r *Rules) svids() []string {
	if r == nil {
		return nil
	}
	return r.SVIDs
}

// frozen returns the rules of frozen limits in the form of package uchart.
func (u *Univariate) frozen() uchart.FrozenPolicy {
	if u.Limits == Moving {
		return uchart.FrozenPolicy{}
	}
	p := uchart.FrozenPolicy{Contexts: or(u.PhaseI.Runs, max(defaultPhaseI, u.MinHistory)), Outliers: u.PhaseI.Outliers}
	if e := u.EWMA; e != nil {
		p.EWMA = uchart.EWMAPolicy{Lambda: e.Lambda, L: e.L, ChartSelection: uchart.ChartSelection{Statistics: e.Statistics, SVIDs: e.SVIDs}}
	}
	if c := u.CUSUM; c != nil {
		p.CUSUM = uchart.CUSUMPolicy{K: c.K, H: c.H, ChartSelection: uchart.ChartSelection{Statistics: c.Statistics, SVIDs: c.SVIDs}}
	}
	if r := u.Rules; r != nil {
		rules, err := spc.ParseRules(r.Names...)
		if err == nil { // names are checked by the schema
			p.Rules = uchart.RulesPolicy{Rules: rules, ChartSelection: uchart.ChartSelection{Statistics: r.Statistics, SVIDs: r.SVIDs}}
		}
	}
	return p
}

func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func on(enabled *bool) bool { return enabled == nil || *enabled }

// matches reports whether a pattern matches; an empty one matches all.
func matches(pattern, s string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	// path.Match keeps * from crossing slashes, which mean nothing here.
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(s, "/", "\x00"))
	return err == nil && ok
}

// Set is the strategies of a file, ready to judge by. It is safe for concurrent
// use.
type Set struct {
	file    File
	judgers []*uchart.Judger
}

func newSet(f File) *Set {
	s := &Set{file: f}
	for _, strategy := range f.Strategies {
		s.judgers = append(s.judgers, &uchart.Judger{Policy: strategy.Policy()})
	}
	return s
}

// Policy returns the rules in the form of package uchart.
func (s *Strategy) Policy() uchart.Policy {
	p := uchart.Policy{
		Exclude: s.Exclude, NoUnivariate: !on(s.Univariate.Enabled), FalseAlarms: s.Univariate.FalseAlarms,
		MinHistory: s.Univariate.MinHistory, Window: s.Univariate.Window, Statistics: s.Univariate.Statistics,
		Frozen: s.Univariate.frozen(),
	}
	if p.FalseAlarms == 0 {
		p.FalseAlarms = defaultFalseAlarms
	}
	if m := s.Multivariate; on(m.Enabled) {
		p.Multivariate = uchart.MultivariatePolicy{
			FalseAlarms: m.FalseAlarms, MinHistory: m.MinHistory, Window: m.Window,
			Statistics: m.Statistics, Variance: m.Variance, Reference: m.Reference, Refit: m.Refit, Bound: m.Bound,
		}
		if p.Multivariate.FalseAlarms == 0 {
			p.Multivariate.FalseAlarms = defaultFalseAlarms
		}
		if m.Bound == 0 && !p.NoUnivariate {
			p.Multivariate.Bound = defaultBound
		}
	}
	return p
}

// File returns a copy of what was read.
func (s *Set) File() File {
	f := s.file
	f.Strategies, f.Webhooks = slices.Clone(f.Strategies), slices.Clone(f.Webhooks)
	return f
}

// Version returns the file's version.
func (s *Set) Version() int { return s.file.Version }

// Of returns the first strategy that matches a run, and false if none does.
func (s *Set) Of(ref defender.ContextRef) (Strategy, bool) {
	if i := s.index(ref); i >= 0 {
		return s.file.Strategies[i], true
	}
	return Strategy{}, false
}

func (s *Set) index(ref defender.ContextRef) int {
	chamber := ref.Chamber.String()
	return slices.IndexFunc(s.file.Strategies, func(st Strategy) bool {
		return matches(st.Match.Chamber, chamber) && matches(st.Match.Recipe, ref.Recipe)
	})
}

// Judge concludes on a run by the strategy that matches it, and by data quality
// alone if none does. The verdict names the strategy and version.
func (s *Set) Judge(ref defender.ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	i := s.index(ref)
	if i < 0 {
		v := uchart.Judge(history, chart, uchart.Policy{NoUnivariate: true})
		v.Strategy = fmt.Sprintf("none@%d", s.file.Version)
		return v
	}
	v := s.judgers[i].JudgeLot(history, ref.Lot, chart)
	v.Strategy = fmt.Sprintf("%s@%d", s.file.Strategies[i].Name, s.file.Version)
	return v
}

// Enough returns how many runs there have to be before one is judged.
func (s *Strategy) Enough() int {
	p := s.Policy()
	return p.Enough()
}

// ClearAfter returns how many normal runs in a row clear an alarm.
func (s *Strategy) ClearAfter() int { return or(s.Alarm.ClearAfter, defaultClearAfter) }

// MaxTries returns how often a request is made.
func (w *Webhook) MaxTries() int { return or(w.Tries, defaultTries) }

package console

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/partition/report"
)

// Lookups answer questions about one thing. What is nil isn't answered.
type Lookups struct {
	// Key returns where a key is. An error matches ErrUnknownTarget if it can't be a key.
	Key func(ctx context.Context, key string) (Key, error)
	// Slot returns what a slot holds.
	Slot func(ctx context.Context, slot int) (Slot, error)
	// AlarmList lists the alarms of all chambers, newest first; with all also cleared ones.
	AlarmList func(ctx context.Context, all bool) ([]Alarm, error)
	// Run returns one run of a chamber.
	Run func(ctx context.Context, tool, chamber, run string) (Run, error)
	// DeadLetters lists the oldest dead letters.
	DeadLetters func(ctx context.Context) ([]DeadLetter, error)
	// Preview plans as the leader would.
	Preview func(ctx context.Context, w WhatIf) (report.Forecast, error)
}

// lookupNames lists what is answered, for the page.
func (l Lookups) lookupNames() []string {
	out := []string{}
	for name, has := range map[string]bool{"key": l.Key != nil, "slot": l.Slot != nil, "alarms": l.AlarmList != nil, "run": l.Run != nil, "preview": l.Preview != nil, "dead-letters": l.DeadLetters != nil} {
		if has {
			out = append(out, name)
		}
	}
	return out
}

// Key says where a key is. The page knows the owner of each slot.
type Key struct {
	Key     string `json:"key"`
	Slot    int    `json:"slot"`
	Known   bool   `json:"known"` // the group is known to have this key
	Tool    string `json:"tool,omitempty"`
	Chamber string `json:"chamber,omitempty"` // of a key that is a chamber
}

// Slot says what a slot holds.
type Slot struct {
	Slot int      `json:"slot"`
	Keys []string `json:"keys"`
}

// WhatIf is a change that a plan is previewed with.
type WhatIf struct {
	Without string // a worker to treat as failed; "": none
	Drain   string // a worker to treat as draining; "": none
	Add     int    // workers that join
	Balance bool   // plan even if nothing would have the leader plan
}

// Run is one run of a chamber, with what it was judged by.
type Run struct {
	Tool         string        `json:"tool"`
	Chamber      string        `json:"chamber"`
	Run          string        `json:"run"`
	Recipe       string        `json:"recipe,omitempty"`
	Start        time.Time     `json:"start"`
	End          time.Time     `json:"end"`
	State        string        `json:"state"`
	Reason       string        `json:"reason,omitempty"`
	Score        float64       `json:"score"`
	ScoreLimit   float64       `json:"scoreLimit,omitempty"` // 0: none yet
	Multivariate *Multivariate `json:"multivariate,omitempty"`
	Violated     int           `json:"violated"` // charts outside their limits
	Violations   []Violation   `json:"violations"`
	Overlays     []Overlay     `json:"overlays"`
}

// Multivariate is what a model of principal components says of a run.
type Multivariate struct {
	T2      float64        `json:"t2"`
	T2Limit float64        `json:"t2Limit"`
	Q       float64        `json:"q"`
	QLimit  float64        `json:"qLimit"`
	By      []Contribution `json:"by"`
}

// Contribution is the part that one variable has in the statistic that is further out.
type Contribution struct {
	SVID  string  `json:"svid"`
	Step  int32   `json:"step"`
	Stat  string  `json:"stat"`
	Share float64 `json:"share"` // of the statistic, -1 to 1; below 0: it lowers T², or lies low in Q
}

// Violation is one chart outside its limits.
type Violation struct {
	SVID   string  `json:"svid"`
	Step   int32   `json:"step"`
	Stat   string  `json:"stat"`
	Value  float64 `json:"value"`
	Lower  float64 `json:"lower"`
	Centre float64 `json:"centre"`
	Upper  float64 `json:"upper"`
	Sigmas float64 `json:"sigmas"`
}

// Overlay is a sensor's trace in a run, over those of runs before it that weren't flagged.
type Overlay struct {
	SVID   string  `json:"svid"`
	Traces []Trace `json:"traces"` // that of the run last
}

// Trace is a sensor's trace in one run, thinned to what a screen can show.
type Trace struct {
	Run     string     `json:"run"`
	Seconds []float64  `json:"seconds"`
	Values  []*float64 `json:"values"` // nil: not a finite number
}

func (c *Console) getKey(w http.ResponseWriter, r *http.Request) {
	if c.o.Key == nil {
		problem(w, http.StatusNotFound, "this console looks up no keys")
		return
	}
	v, err := c.o.Key(r.Context(), r.PathValue("key"))
	answer(w, v, err, "looking up key "+r.PathValue("key"))
}

func (c *Console) getSlot(w http.ResponseWriter, r *http.Request) {
	if c.o.Slot == nil {
		problem(w, http.StatusNotFound, "this console looks up no slots")
		return
	}
	n, err := strconv.Atoi(r.PathValue("slot"))
	if err != nil || n < 0 {
		problem(w, http.StatusBadRequest, "%q is no slot: give its number, from 0 on", r.PathValue("slot"))
		return
	}
	v, err := c.o.Slot(r.Context(), n)
	answer(w, v, err, "looking up the slot")
}

func (c *Console) getAlarms(w http.ResponseWriter, r *http.Request) {
	if c.o.AlarmList == nil {
		problem(w, http.StatusNotFound, "this console lists no alarms")
		return
	}
	v, err := c.o.AlarmList(r.Context(), r.URL.Query().Get("all") != "")
	answer(w, v, err, "listing the alarms")
}

func (c *Console) getRun(w http.ResponseWriter, r *http.Request) {
	if c.o.Run == nil {
		problem(w, http.StatusNotFound, "this console shows no runs")
		return
	}
	v, err := c.o.Run(r.Context(), r.PathValue("tool"), r.PathValue("chamber"), r.PathValue("run"))
	answer(w, v, err, "reading run "+r.PathValue("run"))
}

func (c *Console) getDeadLetters(w http.ResponseWriter, r *http.Request) {
	if c.o.DeadLetters == nil {
		problem(w, http.StatusNotFound, "this console lists no dead letters")
		return
	}
	v, err := c.o.DeadLetters(r.Context())
	answer(w, v, err, "listing the dead letters")
}

func (c *Console) getPreview(w http.ResponseWriter, r *http.Request) {
	if c.o.Preview == nil {
		problem(w, http.StatusNotFound, "this console previews no plan")
		return
	}
	q := r.URL.Query()
	add, err := numberOf(r, "add", 0, 0, 1000)
	if err != nil {
		problem(w, http.StatusBadRequest, "%v", err)
		return
	}
	what := WhatIf{Without: strings.TrimSpace(q.Get("without")), Drain: strings.TrimSpace(q.Get("drain")), Add: add, Balance: q.Get("balance") != ""}
	v, err := c.o.Preview(r.Context(), what)
	answer(w, v, err, "previewing the plan")
}

// answer replies with what was found, or with why it was not.
func answer(w http.ResponseWriter, v any, err error, what string) {
	if err != nil {
		problem(w, statusOf(err), "%s: %v", what, err)
		return
	}
	reply(w, v)
}

package console

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// NodePlane is what the page shows of the node plane. Times are absolute: the page computes ages.
type NodePlane struct {
	At            time.Time      `json:"at"`              // when it was observed
	Error         string         `json:"error,omitempty"` // why parts are missing
	Min           int            `json:"min"`             // MIN_WORKERS
	Max           int            `json:"max"`             // MAX_WORKERS
	Nodes         []Node         `json:"nodes"`
	Pools         []Pool         `json:"pools,omitempty"`
	Pending       []PendingPod   `json:"pending"`
	Action        *Action        `json:"action,omitempty"`  // that began first
	Actions       []Action       `json:"actions,omitempty"` // all that are in progress
	Decision      *Decision      `json:"decision,omitempty"`
	Interruptions []Interruption `json:"interruptions"`
	CPU           *float64       `json:"cpu,omitempty"`         // average utilisation of the workers, 0..1
	CostPerHour   *float64       `json:"costPerHour,omitempty"` // US dollars, of the nodes that run now
	CostSoFar     *float64       `json:"costSoFar,omitempty"`   // US dollars, since the console looks
	Paused        *Pause         `json:"paused,omitempty"`      // nil: scaling is not paused
}

// Pause is scaling being paused by a person.
type Pause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// NodeState is what a node is doing, by the words the page shows.
type NodeState string

// The states of a node, in the order of its life.
const (
	NodeLaunching   NodeState = "launching"   // the instance exists, its node has not joined
	NodeNotReady    NodeState = "not ready"   // joined, not Ready
	NodeReady       NodeState = "ready"       // takes work
	NodeCordoned    NodeState = "cordoned"    // Ready, takes no new pods
	NodeDraining    NodeState = "draining"    // its pods are being evicted by an action
	NodeInterrupted NodeState = "interrupted" // the cloud announced that it will take it away
	NodeTerminating NodeState = "terminating" // marked or ending
	NodeLost        NodeState = "lost"        // the instance is gone, the Node object is not
)

// Node is one worker node.
type Node struct {
	Instance  string    `json:"instance"`
	Name      string    `json:"name,omitempty"`
	Zone      string    `json:"zone"`
	Type      string    `json:"type,omitempty"`
	Market    string    `json:"market,omitempty"`
	Pool      string    `json:"pool,omitempty"`
	State     NodeState `json:"state"`
	Launched  time.Time `json:"launched,omitzero"`
	Pods      int       `json:"pods"`
	Room      int       `json:"room,omitempty"` // how many pods the node takes; 0: unknown
	Workers   []string  `json:"workers,omitempty"`
	Deadline  time.Time `json:"deadline,omitzero"`   // when the cloud takes it away
	Note      string    `json:"note,omitempty"`      // why a drain would fail now
	Fault     string    `json:"fault,omitempty"`     // what is wrong with it, by name
	FaultSeen string    `json:"faultSeen,omitempty"` // what shows it
	FaultFix  string    `json:"faultFix,omitempty"`  // what to do about it
	Goes      bool      `json:"goes,omitempty"`      // the next scale-down takes it
	Stays     string    `json:"stays,omitempty"`     // why the next scale-down doesn't take it
	CostHour  float64   `json:"costHour,omitempty"`  // US dollars
	Protected bool      `json:"protected,omitempty"`
}

// PendingPod is a pod, or several alike, that no node holds.
type PendingPod struct {
	Name     string `json:"name"`
	Count    int    `json:"count"`
	MilliCPU int64  `json:"milliCpu,omitempty"`
	Memory   int64  `json:"memory,omitempty"` // bytes
	NeverFit string `json:"neverFit,omitempty"`
}

// Action is the scaling action in progress.
type Action struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // scale-up or scale-down
	Started time.Time `json:"started"`
	Until   time.Time `json:"until,omitzero"` // when it is given up
	Phases  []Phase   `json:"phases"`
}

// Phase is one step of an action.
type Phase struct {
	Name   string `json:"name"`
	State  string `json:"state"` // done, now, todo or failed
	Detail string `json:"detail,omitempty"`
}

// Decision is the last decision with every gate.
type Decision struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"`
	Reason string    `json:"reason"`
	Means  string    `json:"means,omitempty"` // the reason, as a sentence
	Detail string    `json:"detail,omitempty"`
	Gates  []Gate    `json:"gates"`
	// Next says in sentences what would have to happen for an action to begin, and when at the earliest.
	Next []Path `json:"next,omitempty"`
	// Then is what is done if everything stays as it was seen; "": nothing.
	Then string `json:"then,omitempty"`
}

// Path is one way to an action, with what it needs.
type Path struct {
	Name     string    `json:"name"` // repair, up or down
	Earliest time.Time `json:"earliest,omitzero"`
	Needs    []string  `json:"needs"`
}

// Gate is one condition as it was found.
type Gate struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Threshold string `json:"threshold"`
	Passed    bool   `json:"passed"`
}

// Interruption is an open interruption.
type Interruption struct {
	Instance    string    `json:"instance"`
	Kind        string    `json:"kind"`
	Opened      time.Time `json:"opened"`
	Deadline    time.Time `json:"deadline,omitzero"`
	Replacement string    `json:"replacement,omitempty"`
	Phases      []Phase   `json:"phases"`
}

// WorkerPlane is what the console shows of the worker plane.
type WorkerPlane struct {
	At       time.Time `json:"at"`
	Error    string    `json:"error,omitempty"`
	Group    string    `json:"group"`
	Leader   string    `json:"leader,omitempty"` // a live one; "": there is none
	Epoch    uint64    `json:"epoch"`
	Version  uint64    `json:"version"`            // of the assignment map
	Expected int       `json:"expected,omitempty"` // workers that there should be; 0: unknown
	Keys     int       `json:"keys,omitempty"`     // in all slots
	Workers  []Worker  `json:"workers"`            // live and failed ones, by the numbers of their IDs
	Owners   []int32   `json:"owners"`             // by slot: index into Workers, -1: no owner
	Next     []int32   `json:"next"`               // by slot: the worker that it is handed to, -1: none
	// TakingOver counts the slots of failed workers whose new owners have not begun yet.
	TakingOver int       `json:"takingOver,omitempty"`
	Waiting    uint64    `json:"waiting,omitempty"` // messages that are stored and not processed
	Oldest     time.Time `json:"oldest,omitzero"`   // when the oldest of them was stored
	Queued     int       `json:"queued,omitempty"`  // of them, those that are queued for retry
	// DeadLetters counts the messages that failed too often and wait for a person; 0 also where that isn't read.
	DeadLetters int `json:"deadLetters,omitempty"`
}

// DeadLetter is a message that failed too often.
type DeadLetter struct {
	Number   uint64    `json:"number"`
	At       time.Time `json:"at"` // when it was dead-lettered
	Key      string    `json:"key"`
	Subject  string    `json:"subject"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error"` // of the last attempt
	Worker   string    `json:"worker,omitempty"`
}

// StateFailed is the state of a worker that ended without handing off its slots.
const StateFailed = "FAILED"

// Failure says how a worker failed.
type Failure struct {
	At     time.Time `json:"at"` // its last sign of life
	Reason string    `json:"reason"`
	// Replaced: as many workers as there should be are there without it.
	Replaced bool `json:"replaced,omitempty"`
}

// Worker is one worker of the group.
type Worker struct {
	ID      string    `json:"id"`
	Pod     string    `json:"pod,omitempty"`
	Node    string    `json:"node,omitempty"`
	PID     int       `json:"pid,omitempty"` // of its process on this machine; 0: it has none of its own
	State   string    `json:"state"`
	Failed  *Failure  `json:"failed,omitempty"` // with StateFailed
	Leading bool      `json:"leading,omitempty"`
	Slots   int       `json:"slots"`
	Keys    int       `json:"keys,omitempty"`
	Gaining int       `json:"gaining,omitempty"`
	Losing  int       `json:"losing,omitempty"`
	Drained time.Time `json:"drained,omitzero"` // until when it takes no slots; zero: it takes some
	// DrainedBy says who asked for it on this console; nil: it was not asked for here.
	DrainedBy *Request `json:"drainedBy,omitempty"`
}

// Request is what a person asked for on the console.
type Request struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"` // who they said they are
	Reason string    `json:"reason"`
}

// Moment is one event of the timeline.
type Moment struct {
	Seq     uint64    `json:"seq"` // grows by one with every moment
	At      time.Time `json:"at"`
	Plane   string    `json:"plane"` // nodes, workers, alarms or console
	Kind    string    `json:"kind"`
	Subject string    `json:"subject,omitempty"` // instance, worker or chamber
	Text    string    `json:"text"`
	Level   string    `json:"level,omitempty"` // "", good, warn or bad
}

// SlotMove is one slot's way from one owner to the next: a handoff or a takeover.
type SlotMove struct {
	Seq      uint64        `json:"seq"` // grows by one with every move
	Slot     int           `json:"slot"`
	From     string        `json:"from"` // "": unknown
	To       string        `json:"to"`
	At       time.Time     `json:"at"`
	Takeover bool          `json:"takeover,omitempty"` // from a failed worker
	Pause    time.Duration `json:"pauseNs"`            // no worker served the slot for this long; negative: unknown
}

// AlarmCount counts the alarms of all chambers.
type AlarmCount struct {
	Open         int    `json:"open"` // and not acknowledged
	Acknowledged int    `json:"acknowledged"`
	Error        string `json:"error,omitempty"` // why they could not be counted
}

// ChamberInfo names a chamber that has charts.
type ChamberInfo struct {
	Tool    string    `json:"tool"`
	Chamber string    `json:"chamber"`
	Last    time.Time `json:"last,omitzero"`
	Alarms  int       `json:"alarms,omitempty"` // open ones
}

// Series is one control chart of a chamber.
type Series struct {
	SVID   string  `json:"svid"`
	Step   string  `json:"step,omitempty"`
	Stat   string  `json:"stat"`
	Unit   string  `json:"unit,omitempty"`
	Points []Point `json:"points"`
}

// Point is one point of a control chart, with the limits that held for it.
type Point struct {
	At      time.Time `json:"at"`
	Context string    `json:"context"`
	Value   *float64  `json:"value"` // absent: not a finite number
	Lower   *float64  `json:"lower,omitempty"`
	Centre  *float64  `json:"centre,omitempty"`
	Upper   *float64  `json:"upper,omitempty"`
	Flags   []string  `json:"flags,omitempty"` // the rules it breaks
}

// Alarm is an alarm of a chamber.
type Alarm struct {
	ID      string    `json:"id"` // as a command's target
	Tool    string    `json:"tool,omitempty"`
	Chamber string    `json:"chamber,omitempty"`
	Run     string    `json:"run,omitempty"` // that opened it
	At      time.Time `json:"at"`
	Text    string    `json:"text"`
	State   string    `json:"state"`          // open, acknowledged or cleared
	By      string    `json:"by,omitempty"`   // who acknowledged it
	Note    string    `json:"note,omitempty"` // what they said
}

// Charts is what the page shows of one chamber.
type Charts struct {
	Tool    string   `json:"tool"`
	Chamber string   `json:"chamber"`
	Owner   string   `json:"owner,omitempty"`
	Slot    int      `json:"slot"`
	Series  []Series `json:"series"`
	Alarms  []Alarm  `json:"alarms"`
}

// Command is what a person asks for on the page.
type Command struct {
	Name   string `json:"name"`   // one of the constants below
	Target string `json:"target"` // worker, or alarm; "" where there is only one
	Reason string `json:"reason"` // in the person's words, for the timeline
	By     string `json:"by"`     // who they say they are; may be empty
}

// The commands that the page has buttons for.
const (
	DrainWorker   = "drain-worker"   // Target is the worker; it hands off its slots and takes none for DrainFor
	UndrainWorker = "undrain-worker" // Target is the worker; it takes slots again
	PauseScaling  = "pause-scaling"  // no new scaling action begins
	ResumeScaling = "resume-scaling" // they begin again
	Acknowledge   = "acknowledge"    // Target is the alarm's ID
	// AcknowledgeFailure removes a failed worker from the console. Target is its ID. It starts no replacement.
	AcknowledgeFailure = "acknowledge-failure"
)

// DrainFor is how long a worker that is drained from the console takes no slots, unless it is undrained before: the person who drained
// it may have forgotten it.
const DrainFor = time.Hour

// check reports every fault of a command's texts.
func (c Command) check() error {
	var errs []error
	if c.Reason == "" {
		errs = append(errs, errors.New("reason is empty: say why, it goes into the timeline"))
	}
	for _, f := range []struct {
		name, text string
		most       int
	}{{"reason", c.Reason, maxReason}, {"by", c.By, maxBy}, {"target", c.Target, maxTarget}, {"name", c.Name, maxBy}} {
		if n := utf8.RuneCountInString(f.text); n > f.most {
			errs = append(errs, fmt.Errorf("%s has %d characters: write at most %d", f.name, n, f.most))
		}
		if strings.ContainsFunc(f.text, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("%s has control characters: write one line of text", f.name))
		}
	}
	return errors.Join(errs...)
}

// Limits of what a person may write, in characters.
const (
	maxReason = 200
	maxBy     = 100
	maxTarget = 300
)

package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Events are as EventBridge delivers them:
// https://docs.aws.amazon.com/eventbridge/latest/ref/events-ref-ec2.html and
// https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html.
const (
	spotWarning   = "EC2 Spot Instance Interruption Warning"
	rebalance     = "EC2 Instance Rebalance Recommendation"
	stateChange   = "EC2 Instance State-change Notification"
	healthEvent   = "AWS Health Event"
	largestEvent  = 256 << 10 // EventBridge's own limit
	mostInstances = 200       // of one Health event
)

// Lifetime is how long an event is worth working on: the notice that a Spot warning gives.
const Lifetime = 120 * time.Second

// UnknownError says that an event is well-formed and none that is worked on.
type UnknownError struct {
	ID, Source, DetailType string
	Why                    string
	// Harmless tells that events of its type are worked on and this one is of no concern: a scheduled change that was called off, for
	// instance. Others come by a rule that is too wide.
	Harmless bool
}

// Error names the event and why it is not worked on.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("event %.80q of source %.80q, type %.80q: %s", e.ID, e.Source, e.DetailType, e.Why)
}

// FieldError says what is wrong with an event.
type FieldError struct {
	Field string // for example detail.instance-id
	Why   string
}

// Error names the field.
func (e *FieldError) Error() string { return "event: " + e.Field + " " + e.Why }

type envelope struct {
	ID         string          `json:"id"`
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Time       string          `json:"time"`
	Detail     json.RawMessage `json:"detail"`
}

type instanceDetail struct {
	InstanceID string `json:"instance-id"`
	State      string `json:"state"`
}

type healthDetail struct {
	Service   string `json:"service"`
	Category  string `json:"eventTypeCategory"`
	TypeCode  string `json:"eventTypeCode"`
	Status    string `json:"statusCode"`
	StartTime string `json:"startTime"`
	Entities  []struct {
		Value  string `json:"entityValue"`
		Status string `json:"status"`
	} `json:"affectedEntities"`
}

// instanceID is how EC2 forms IDs: 8 or 17 hexadecimal digits. The simulator's have fewer.
var instanceID = regexp.MustCompile(`^i-[0-9a-f]{1,17}$`)

// Parse reads an EventBridge event of one of the four kinds: a Spot interruption warning, a rebalance recommendation, a
// scheduled change of AWS Health, which can be about several instances, and a change of an instance's state. Anything else that is
// an event gives an *UnknownError, what is malformed an *FieldError that names the field.
func Parse(b []byte) ([]nodes.InterruptionEvent, error) {
	if len(b) > largestEvent {
		return nil, &FieldError{"body", fmt.Sprintf("has %d bytes, more than EventBridge delivers", len(b))}
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		var field *json.UnmarshalTypeError
		if errors.As(err, &field) && field.Field != "" {
			return nil, &FieldError{field.Field, "is a " + field.Value}
		}
		return nil, &FieldError{"body", "can't be read: " + err.Error()}
	}
	switch {
	case e.DetailType == "":
		return nil, &FieldError{"detail-type", "is missing"}
	case e.ID == "" || len(e.ID) > 256:
		return nil, &FieldError{"id", "is missing or too long"}
	}
	source := "aws.ec2"
	if e.DetailType == healthEvent {
		source = "aws.health"
	}
	kind, known := map[string]nodes.InterruptionKind{
		spotWarning: nodes.Warning, rebalance: nodes.Rebalance, stateChange: nodes.StateChange, healthEvent: nodes.Health,
	}[e.DetailType]
	switch {
	case !known:
		return nil, e.unknown("is no interruption; its rule should not bring it here")
	case e.Source != source:
		return nil, &FieldError{"source", fmt.Sprintf("is %.80q, events of this type come from %s", e.Source, source)}
	case len(e.Detail) == 0:
		return nil, &FieldError{"detail", "is missing"}
	}
	at, err := time.Parse(time.RFC3339, e.Time)
	if err != nil || at.IsZero() {
		return nil, &FieldError{"time", fmt.Sprintf("is %.40q, no time like 2024-10-27T04:10:00Z", e.Time)}
	}
	if kind == nodes.Health {
		return e.health(at.UTC())
	}
	return e.ofInstance(kind, at.UTC())
}

func (e envelope) unknown(why string) error {
	return &UnknownError{ID: e.ID, Source: e.Source, DetailType: e.DetailType, Why: why, Harmless: e.DetailType == healthEvent}
}

func (e envelope) ofInstance(kind nodes.InterruptionKind, at time.Time) ([]nodes.InterruptionEvent, error) {
	var d instanceDetail
	if err := json.Unmarshal(e.Detail, &d); err != nil {
		return nil, detailError(err)
	}
	out := nodes.InterruptionEvent{ID: e.ID, Kind: kind, InstanceID: d.InstanceID, At: at}
	if !instanceID.MatchString(d.InstanceID) {
		return nil, &FieldError{"detail.instance-id", fmt.Sprintf("is %.40q, no instance's ID", d.InstanceID)}
	}
	if kind == nodes.StateChange {
		switch out.State = nodes.InstanceState(d.State); out.State {
		case nodes.StatePending, nodes.StateRunning, nodes.StateStopping, nodes.StateStopped, nodes.StateShuttingDown, nodes.StateTerminated:
		default:
			return nil, &FieldError{"detail.state", fmt.Sprintf("is %.40q, no state of an instance", d.State)}
		}
	}
	return []nodes.InterruptionEvent{out}, nil
}

// health reads a scheduled change. What concerns no instance, or has been called off or done, is of no concern.
func (e envelope) health(at time.Time) ([]nodes.InterruptionEvent, error) {
	var d healthDetail
	if err := json.Unmarshal(e.Detail, &d); err != nil {
		return nil, detailError(err)
	}
	switch {
	case d.Service != "EC2":
		return nil, e.unknown(fmt.Sprintf("is about %.40q, not EC2", d.Service))
	case d.Category != "scheduledChange":
		return nil, e.unknown(fmt.Sprintf("is of category %.40q, not scheduledChange", d.Category))
	case d.Status == "closed":
		return nil, e.unknown("is closed")
	case len(d.Entities) == 0:
		return nil, &FieldError{"detail.affectedEntities", "is empty"}
	case len(d.Entities) > mostInstances:
		return nil, &FieldError{"detail.affectedEntities", fmt.Sprintf("has %d entries, more than %d", len(d.Entities), mostInstances)}
	}
	start, err := healthTime(d.StartTime)
	if err != nil {
		return nil, err
	}
	var out []nodes.InterruptionEvent
	for i, entity := range d.Entities {
		if entity.Status == "RESOLVED" {
			continue
		}
		if !instanceID.MatchString(entity.Value) {
			return nil, &FieldError{fmt.Sprintf("detail.affectedEntities[%d].entityValue", i), fmt.Sprintf("is %.40q, no instance's ID", entity.Value)}
		}
		id := e.ID
		if len(d.Entities) > 1 {
			id = fmt.Sprintf("%s#%d", e.ID, i)
		}
		out = append(out, nodes.InterruptionEvent{ID: id, Kind: nodes.Health, InstanceID: entity.Value, At: at, Start: start})
	}
	if len(out) == 0 {
		return nil, e.unknown("is resolved for every instance")
	}
	return out, nil
}

// healthTime reads the start of a change, which AWS Health writes as HTTP does: Sat, 05 Jun 2021 15:10:09 GMT.
func healthTime(s string) (time.Time, error) {
	for _, layout := range []string{http.TimeFormat, time.RFC1123Z, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &FieldError{"detail.startTime", fmt.Sprintf("is %.40q, no time like Sat, 05 Jun 2021 15:10:09 GMT", s)}
}

func detailError(err error) error {
	var field *json.UnmarshalTypeError
	if errors.As(err, &field) && field.Field != "" {
		return &FieldError{"detail." + field.Field, "is a " + field.Value}
	}
	return &FieldError{"detail", "is no object"}
}

// Stale reports whether an event comes too late to be worked on: more than Lifetime after it was sent. A scheduled change is worth working on
// until it begins.
func Stale(e nodes.InterruptionEvent, now time.Time) bool {
	if e.Kind == nodes.Health && now.Before(e.Start) {
		return false
	}
	return now.Sub(e.At) > Lifetime
}

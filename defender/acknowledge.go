package defender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// Acknowledgement says who handles an alarm. It is kept beside the notices, in
// the same stream, and so outlives every defender.
type Acknowledgement struct {
	Chamber Chamber   `json:"chamber"`
	Opened  string    `json:"opened"` // context that opened the alarm
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// Validate reports every fault of a.
func (a Acknowledgement) Validate() error {
	errs := []error{a.Chamber.Validate(), checkContext(a.Opened), checkText("by", a.By), checkText("note", a.Note), checkTime("at", a.At)}
	if a.By == "" {
		errs = append(errs, errors.New("by is empty: say who acknowledges"))
	}
	for what, s := range map[string]string{"by": a.By, "note": a.Note} {
		for _, r := range s {
			if unicode.IsControl(r) {
				errs = append(errs, fmt.Errorf("%s contains the control character %U: write one line of text", what, r))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// AcknowledgementSubject is where the acknowledgement of an alarm is published.
func AcknowledgementSubject(c Chamber, opened string) string {
	return "dc-alarm-ack." + c.Tool + "." + c.Name + "." + opened
}

// ErrNoAlarm says that there is no such alarm, or that it is cleared.
var ErrNoAlarm = errors.New("no such standing alarm")

// Acknowledge keeps an acknowledgement of a standing alarm and returns the one that
// is kept: the first, if there are several. An alarm that doesn't stand is an error
// matching [ErrNoAlarm].
func Acknowledge(ctx context.Context, nc *nats.Conn, a Acknowledgement) (Acknowledgement, error) {
	if err := a.Validate(); err != nil {
		return a, fmt.Errorf("acknowledging an alarm: %w", err)
	}
	fail := func(err error) (Acknowledgement, error) {
		return a, fmt.Errorf("acknowledging alarm %s of %s: %w", a.Opened, a.Chamber, err)
	}
	list, err := ListAlarms(ctx, nc, AlarmListQuery{Chamber: a.Chamber, Limit: maxListed})
	if err != nil {
		return fail(err)
	}
	at := slices.IndexFunc(list, func(s AlarmStatus) bool { return s.Opened == a.Opened })
	if at < 0 {
		return fail(fmt.Errorf("%w: see the list for those there are", ErrNoAlarm))
	}
	if kept := list[at].Acknowledged; kept != nil {
		return *kept, nil
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fail(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fail(err)
	}
	msg := &nats.Msg{Subject: AcknowledgementSubject(a.Chamber, a.Opened), Data: data}
	_, err = js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0))
	if taken := new(jetstream.APIError); errors.As(err, &taken) && taken.ErrorCode == errTaken {
		return firstAcknowledgement(ctx, js, msg.Subject)
	}
	if err != nil {
		return fail(err)
	}
	return a, nil
}

func firstAcknowledgement(ctx context.Context, js jetstream.JetStream, subject string) (Acknowledgement, error) {
	var a Acknowledgement
	stream, err := js.Stream(ctx, AlarmStream)
	if err != nil {
		return a, fmt.Errorf("reading stream %s: %w", AlarmStream, err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	if err == nil {
		err = json.Unmarshal(msg.Data, &a)
	}
	if err != nil {
		return a, fmt.Errorf("reading the acknowledgement at %s: %w", subject, err)
	}
	return a, nil
}

// AlarmStatus is an alarm with what became of it.
type AlarmStatus struct {
	Chamber      Chamber          `json:"chamber"`
	Recipe       string           `json:"recipe"`
	Opened       string           `json:"opened"` // context that opened it; with the chamber it identifies it
	Since        time.Time        `json:"since"`  // end of the first flagged context that is known
	Latest       time.Time        `json:"latest"` // and of the last
	Count        int              `json:"count"`  // flagged contexts
	State        uchart.State     `json:"state"`  // of the last of them
	Reason       string           `json:"reason"` // of the last of them
	Strategy     string           `json:"strategy"`
	Fault        *classify.Match  `json:"fault,omitempty"` // of the last one that was compared with labels; nil if none was
	Cleared      *time.Time       `json:"cleared,omitempty"`
	ClearedBy    string           `json:"cleared_by,omitempty"` // why
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
}

// Status returns "cleared", "acknowledged" or "open".
func (a AlarmStatus) Status() string {
	switch {
	case a.Cleared != nil:
		return "cleared"
	case a.Acknowledged != nil:
		return "acknowledged"
	}
	return "open"
}

// AlarmListQuery selects alarms to list.
type AlarmListQuery struct {
	Chamber Chamber // the zero Chamber asks for all chambers
	All     bool    // cleared ones, too
	Limit   int     // at most N, the newest; 0 or less gives none
}

// maxListed bounds the alarms of one chamber that are looked at to find one.
const maxListed = 1 << 20

// ListAlarms returns alarms as the stream of notices tells them, newest first. The
// stream keeps notices for 30 days.
func ListAlarms(ctx context.Context, nc *nats.Conn, q AlarmListQuery) ([]AlarmStatus, error) {
	of := "*.*.>"
	if q.Chamber != (Chamber{}) {
		of = q.Chamber.Tool + "." + q.Chamber.Name + ".>"
	}
	book, err := readAlarms(ctx, nc, of)
	if err != nil {
		return nil, err
	}
	return book.List(q), nil
}

// ReadAlarms returns the alarms of all chambers. Take keeps them up to date.
func ReadAlarms(ctx context.Context, nc *nats.Conn) (*AlarmBook, error) {
	return readAlarms(ctx, nc, "*.*.>")
}

// readAlarms reads the notices and acknowledgements whose subjects end like of.
func readAlarms(ctx context.Context, nc *nats.Conn, of string) (*AlarmBook, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, AlarmStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no stream %s on this server: has a defender or collector run on it?", AlarmStream)
	}
	if err != nil {
		return nil, fmt.Errorf("reading stream %s: %w", AlarmStream, err)
	}
	book := NewAlarmBook()
	take := func(subject string, data []byte) { book.Take(subject, data) }
	if err := readAll(ctx, stream, AlarmSubjects(of), take); err != nil {
		return nil, fmt.Errorf("reading the alarms: %w", err)
	}
	return book, nil
}

// AlarmSubjects are the subjects of the notices and acknowledgements of some chambers: ">" is all.
func AlarmSubjects(of string) []string { return []string{"dc-alarm." + of, "dc-alarm-ack." + of} }

// readAll calls each with the messages that a stream has of some subjects.
func readAll(ctx context.Context, stream jetstream.Stream, subjects []string, each func(subject string, data []byte)) error {
	// What was pending may expire meanwhile, and would be waited for.
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return err
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return err
	}
	if info.NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		each(msg.Subject(), msg.Data())
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// readTimeout bounds the reading of all notices.
const readTimeout = time.Minute

type alarmID struct {
	chamber        Chamber
	recipe, opened string
}

// AlarmBook has the alarms that notices and acknowledgements add up to. To take a message again changes nothing. One goroutine at a
// time may use it.
type AlarmBook struct {
	byID map[alarmID]*AlarmStatus
	acks map[alarmID]Acknowledgement // without recipe
}

// NewAlarmBook returns a book without alarms.
func NewAlarmBook() *AlarmBook {
	return &AlarmBook{byID: map[alarmID]*AlarmStatus{}, acks: map[alarmID]Acknowledgement{}}
}

// Take adds a message of AlarmSubjects, and returns the alarms that it is about as they are now.
func (f *AlarmBook) Take(subject string, data []byte) []AlarmStatus {
	if strings.HasPrefix(subject, "dc-alarm-ack.") {
		return f.takeAcknowledgement(data)
	}
	var n AlarmNotice
	if json.Unmarshal(data, &n) != nil || n.Opened == "" {
		return nil // of no version known here
	}
	a := f.takeNotice(n)
	return []AlarmStatus{f.status(a)}
}

// takeAcknowledgement may come before the notice that it is about, of which nothing is known then.
func (f *AlarmBook) takeAcknowledgement(data []byte) []AlarmStatus {
	var k Acknowledgement
	if json.Unmarshal(data, &k) != nil {
		return nil
	}
	f.acks[alarmID{k.Chamber, "", k.Opened}] = k

	var about []AlarmStatus
	for id, a := range f.byID {
		if id.chamber == k.Chamber && id.opened == k.Opened {
			about = append(about, f.status(a))
		}
	}
	return about
}

// takeNotice returns the alarm of a notice, changed by it.
func (f *AlarmBook) takeNotice(n AlarmNotice) *AlarmStatus {
	id := alarmID{n.Context.Chamber, n.Recipe, n.Opened}
	a := f.byID[id]
	if a == nil {
		a = &AlarmStatus{Chamber: id.chamber, Recipe: id.recipe, Opened: id.opened, Since: n.Context.End}
		f.byID[id] = a
	}
	if n.Event == AlarmCleared {
		end := n.Context.End
		a.Cleared, a.ClearedBy = &end, n.Reason
		return a
	}
	if n.Count < a.Count {
		return a // a context that came late
	}
	a.Count, a.Latest, a.State, a.Reason, a.Strategy = n.Count, n.Context.End, n.State, n.Reason, n.Strategy
	if n.Classification != nil {
		a.Fault = n.Classification
	}
	return a
}

// status is an alarm with its acknowledgement.
func (f *AlarmBook) status(a *AlarmStatus) AlarmStatus {
	out := *a
	if ack, ok := f.acks[alarmID{a.Chamber, "", a.Opened}]; ok {
		out.Acknowledged = &ack
	}
	return out
}

// List returns alarms, newest first.
func (f *AlarmBook) List(q AlarmListQuery) []AlarmStatus {
	list := make([]AlarmStatus, 0, len(f.byID))
	for id, a := range f.byID {
		if a.Cleared != nil && !q.All || q.Chamber != (Chamber{}) && id.chamber != q.Chamber {
			continue
		}
		list = append(list, f.status(a))
	}
	slices.SortFunc(list, func(a, b AlarmStatus) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Chamber.String(), b.Chamber.String()), cmp.Compare(a.Opened, b.Opened))
	})
	return list[:min(len(list), max(q.Limit, 0))]
}

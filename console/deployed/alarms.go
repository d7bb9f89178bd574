package deployed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/defender"
)

// alarms shows the alarms of chambers as the stream of notices tells them.
type alarms struct {
	link    link
	contact *console.Contact
	page    *console.Console
	poll    *poller

	mu    sync.Mutex
	begun bool
	list  []defender.AlarmStatus // newest first, cleared ones, too
	err   error
	told  map[string]bool // what is in the timeline
}

const (
	alarmsEvery = time.Minute // beside the notices, which have it read at once
	alarmsLeast = 2 * time.Second
	alarmsMost  = 1 << 20
	alarmsShown = 500
)

func newAlarms(l link) *alarms {
	a := &alarms{link: l, contact: console.NewContact("alarms"), told: map[string]bool{}}
	a.poll = newPoller(alarmsEvery, alarmsLeast, a.read)
	return a
}

func (a *alarms) run(ctx context.Context) {
	soon := func(*nats.Msg) { a.poll.soon() }
	for _, subject := range []string{"dc-alarm.>", "dc-alarm-ack.>"} {
		if sub, err := a.link.nc.Subscribe(subject, soon); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	a.poll.run(ctx)
}

func (a *alarms) read(ctx context.Context) {
	if err := a.link.up(); err != nil {
		a.keep(nil, err)
		time.AfterFunc(alarmsLeast, a.poll.soon) // it may come back any moment
		return
	}
	list, err := defender.ListAlarms(ctx, a.link.nc, defender.AlarmListQuery{All: true, Limit: alarmsMost})
	if err = a.contact.Note(err); err != nil {
		time.AfterFunc(alarmsLeast, a.poll.soon)
	}
	a.keep(list, err)
}

// keep takes in what was read. What is new in it goes into the timeline.
func (a *alarms) keep(list []defender.AlarmStatus, err error) {
	a.mu.Lock()
	first := !a.begun
	a.err = err
	var news []console.Moment
	if err == nil {
		a.list, a.begun = list, true
		for i := len(list) - 1; i >= 0; i-- {
			for kind, m := range alarmMoments(list[i]) {
				if key := kind + " " + list[i].Chamber.String() + " " + list[i].Recipe + " " + list[i].Opened; !a.told[key] {
					a.told[key] = true
					news = append(news, m)
				}
			}
		}
	}
	a.mu.Unlock()
	if first {
		a.page.Recall(news)
	} else {
		for _, m := range news {
			a.page.Say(m)
		}
	}
	a.page.Changed()
}

// alarmMoments are the lines that an alarm has in the timeline, by their kinds.
func alarmMoments(a defender.AlarmStatus) map[string]console.Moment {
	chamber := a.Chamber.String()
	line := func(at time.Time, kind, level, format string, args ...any) console.Moment {
		return console.Moment{At: at, Plane: "alarms", Kind: kind, Subject: chamber, Level: level, Text: chamber + ": " + fmt.Sprintf(format, args...)}
	}
	out := map[string]console.Moment{"alarm": line(a.Since, "alarm", "bad", "run %s: %s", a.Opened, a.Reason)}
	if k := a.Acknowledged; k != nil {
		text := "the alarm of " + a.Opened + " is acknowledged by " + k.By
		if k.Note != "" {
			text += ": " + k.Note
		}
		out["acknowledged"] = line(k.At, "acknowledged", "", "%s", text)
	}
	if a.Cleared != nil {
		out["cleared"] = line(*a.Cleared, "cleared", "", "the alarm of %s is cleared, %s", a.Opened, a.ClearedBy)
	}
	return out
}

// now returns the alarms as they were read last.
func (a *alarms) now() ([]defender.AlarmStatus, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil && !a.begun {
		return nil, errAlarms
	}
	return a.list, a.err
}

var errAlarms = fmt.Errorf("the alarms are still being read")

// count counts the alarms of all chambers. What was read last stands while they can't be read.
func (a *alarms) count(context.Context) (n console.AlarmCount, err error) {
	list, err := a.now()
	for _, x := range list {
		switch x.Status() {
		case "open":
			n.Open++
		case "acknowledged":
			n.Acknowledged++
		}
	}
	return n, err
}

func (a *alarms) shown(_ context.Context, all bool) ([]console.Alarm, error) {
	list, err := a.now()
	if list == nil && err != nil {
		return nil, err
	}
	out := []console.Alarm{}
	for _, x := range list {
		if (all || x.Cleared == nil) && len(out) < alarmsShown {
			out = append(out, chamberview.AlarmOf(x))
		}
	}
	return out, nil
}

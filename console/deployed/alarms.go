package deployed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/defender"
)

// alarms shows the alarms of chambers as the stream of notices tells them. A notice is taken as it comes. That alone could miss one,
// since the connection may break: so notices also have the whole stream read again, at most every alarmsLeast.
type alarms struct {
	link    link
	contact *console.Contact
	page    *console.Console
	poll    *poller

	mu   sync.Mutex
	book *defender.AlarmBook    // nil until it could be read
	list []defender.AlarmStatus // newest first, cleared ones, too; nil if book has changed since
	err  error
	told map[string]bool // what is in the timeline
}

const (
	alarmsEvery = time.Minute // beside the notices
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
	for _, subject := range defender.AlarmSubjects(">") {
		if sub, err := a.link.nc.Subscribe(subject, a.notice); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	a.poll.run(ctx)
}

// notice takes in a notice or an acknowledgement as it is published.
func (a *alarms) notice(m *nats.Msg) {
	defer a.poll.soon()
	a.mu.Lock()
	if a.book == nil { // the first reading has it
		a.mu.Unlock()
		return
	}
	about := a.book.Take(m.Subject, m.Data)
	a.list = nil
	news := a.news(about)
	a.mu.Unlock()

	for _, line := range news {
		a.page.Say(line)
	}
	a.page.Changed()
}

func (a *alarms) read(ctx context.Context) {
	if err := a.link.up(); err != nil {
		a.keep(nil, err)
		time.AfterFunc(alarmsLeast, a.poll.soon) // it may come back any moment
		return
	}
	book, err := defender.ReadAlarms(ctx, a.link.nc)
	if err = a.contact.Note(err); err != nil {
		time.AfterFunc(alarmsLeast, a.poll.soon)
	}
	a.keep(book, err)
}

// keep takes in what was read. What is new in it goes into the timeline. A notice that came after the last message that was read, and
// before this, is in the former book alone: the next reading, which that notice has asked for, brings it back.
func (a *alarms) keep(book *defender.AlarmBook, err error) {
	a.mu.Lock()
	first := a.book == nil
	a.err = err
	var news []console.Moment
	if err == nil {
		a.book, a.list = book, nil
		all := a.sorted()
		slices.Reverse(all) // the timeline has the oldest first
		news = a.news(all)
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

// news are the lines of alarms that are not in the timeline yet.
func (a *alarms) news(about []defender.AlarmStatus) (news []console.Moment) {
	for _, x := range about {
		for kind, m := range alarmMoments(x) {
			if key := kind + " " + x.Chamber.String() + " " + x.Recipe + " " + x.Opened; !a.told[key] {
				a.told[key] = true
				news = append(news, m)
			}
		}
	}
	return news
}

// sorted returns a list of all alarms, newest first.
func (a *alarms) sorted() []defender.AlarmStatus {
	if a.list == nil {
		a.list = a.book.List(defender.AlarmListQuery{All: true, Limit: alarmsMost})
	}
	return slices.Clone(a.list)
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

// now returns the alarms as they are known, newest first.
func (a *alarms) now() ([]defender.AlarmStatus, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.book == nil {
		return nil, cmp.Or(a.err, errAlarms)
	}
	return a.sorted(), a.err
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

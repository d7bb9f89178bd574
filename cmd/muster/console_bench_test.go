package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// seen collects when things happened that a console should show, by what its page shows of them.
type seen struct {
	mu sync.Mutex
	at map[string]time.Time
}

// first notes when something happened, for the first time.
func (s *seen) first(text string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[text]; !known {
		s.at[text] = at
	}
}

func (s *seen) all() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]time.Time{}
	for text, at := range s.at {
		all[text] = at
	}
	return all
}

// BenchmarkConsoleOfALargeGroup measures muster console beside a group of 150 defenders with 2,400 chambers in 1,280 slots, fed with 30
// runs a second: how long it takes from an event to the painted frame of a browser that shows it, and how many bytes the page loads.
// The group and its servers are a muster up, which is another process on the same machine, as is the console; all clocks are the
// machine's. Each round drains a worker or lets it back, which moves about nine slots, and raises an alarm. Measured are
//
//   - event: from an event of the group, as its worker published it, to its row in the timeline
//   - alarm: from a notice's publication to its row
//   - plane: from a write of the assignment map, as another client gets it, to a panel that shows that version, or a later one
func BenchmarkConsoleOfALargeGroup(b *testing.B) {
	p := &factory{t: b, dir: b.TempDir()}
	nc := p.largeGroup()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	served := p.start([]string{asMuster + "=1"}, exe, "console", "--nats", p.url, "--store", filepath.Join(p.dir, "fdc.db"), "--nodes", filepath.Join(p.dir, "nodes"), "--http", "127.0.0.1:0")
	var url string
	p.eventually("the console's address", func() error {
		if m := regexp.MustCompile(`Console: (http://\S+)`).FindStringSubmatch(served.text()); m != nil {
			url = m[1]
			return nil
		}
		return fmt.Errorf("it wrote %q", served.text())
	})
	ctx, _ := browser.Open(b, url, 1440, 900)
	browser.Eventually(ctx, b, `document.querySelectorAll('[data-state="STABLE"]').length === 150 && document.querySelectorAll('[data-instance]').length > 0 && document.querySelectorAll('#chamber-list button').length > 0`)
	loaded, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].reduce((sum, e) => sum + e.transferSize, 0)`))
	if err != nil {
		b.Fatal(err)
	}
	browser.Eventually(ctx, b, browser.NoteRows)

	events, alarms, maps := &seen{at: map[string]time.Time{}}, &seen{at: map[string]time.Time{}}, &seen{at: map[string]time.Time{}}
	noteEvents(b, nc, events)
	noteMaps(b, nc, maps)
	group := partition.Open(nc, defender.Group)
	for n := 0; b.Loop(); n++ {
		until := time.Now().Add(time.Hour)
		if n%2 == 1 {
			until = time.Time{}
		}
		worker := fmt.Sprintf("defender-%d", n/2%100+20)
		if _, err := group.Drain(b.Context(), func(l report.Lease) bool { return l.ID == worker }, until); err != nil {
			b.Fatal(err)
		}
		alarms.first(raiseAlarm(b, nc, n))
		time.Sleep(time.Duration(700+n*37%300) * time.Millisecond)
	}

	time.Sleep(2 * time.Second) // the last ones
	rows, err := chromedp.Run(ctx, chromedp.Evaluate[map[string][2]float64](`window.rows`))
	if err != nil {
		b.Fatal(err)
	}
	reportShown(b, "event", events.all(), rows)
	reportShown(b, "alarm", alarms.all(), rows)
	reportShown(b, "plane", maps.all(), everyVersion(rows))
	b.ReportMetric(loaded/1000, "page-kB")
	b.ReportMetric(0, "ns/op") // mostly what is between them
}

// largeGroup starts a muster up with 150 defenders, and returns a connection to its servers once all of them are stable.
func (p *factory) largeGroup() *nats.Conn {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.url = "nats://127.0.0.1:" + port
	up := p.start([]string{asMuster + "=1"}, exe, "up", "--defenders", "150", "--chambers", "2400", "--slots", "1280", "--rate", "30", "--busy", "--dir", p.dir, "--http", "", "--nats-port", port)
	p.eventually("150 defenders", func() error {
		if text := up.text(); !strings.Contains(text, "150 defenders STABLE") {
			return fmt.Errorf("up wrote %q", text[max(0, len(text)-300):])
		}
		return nil
	})
	nc, err := nats.Connect(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	return nc
}

// noteEvents notes the group's events that have a row in the timeline.
func noteEvents(b *testing.B, nc *nats.Conn, into *seen) {
	b.Helper()
	_, err := nc.Subscribe(partition.Open(nc, defender.Group).EventSubject(), func(m *nats.Msg) {
		var e event.Event
		if json.Unmarshal(m.Data, &e) != nil {
			return
		}
		if row, ok := groupview.MomentOf(e); ok {
			into.first(row.Text, e.Time)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// noteMaps notes when each version of the assignment map came from the servers, to a client that does nothing else.
func noteMaps(b *testing.B, nc *nats.Conn, into *seen) {
	b.Helper()
	maps, err := partition.Open(nc, defender.Group).WatchMap(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	before := (<-maps).Version
	go func() {
		for m := range maps {
			if at := time.Now(); m.Version != before {
				into.first(fmt.Sprintf("map version %d", m.Version), at)
			}
		}
	}()
}

// raiseAlarm publishes the notice of an alarm. It returns the alarm's row in the timeline, and when it was published.
func raiseAlarm(b *testing.B, nc *nats.Conn, n int) (string, time.Time) {
	b.Helper()
	chamber, opened, at := defender.Chamber{Tool: "tool007", Name: "chamber1"}, fmt.Sprintf("bench-%d", n), time.Now().UTC()
	notice, err := json.Marshal(defender.AlarmNotice{Event: defender.AlarmOpened, Opened: opened, Count: 1, Strategy: "uchart@1", Recipe: opened,
		Alarm: defender.Alarm{Context: defender.ContextRef{ID: opened, Chamber: chamber, Recipe: opened, Start: at.Add(-time.Minute), End: at}, State: uchart.Alarm, Reason: "for a measurement"}})
	if err != nil {
		b.Fatal(err)
	}
	published := time.Now()
	if err := nc.Publish(defender.AlarmSubject(chamber, opened), notice); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("%s: run %s: for a measurement", chamber, opened), published
}

// everyVersion adds to the versions of the map that a page showed those that it passed over: they were shown with the next one.
func everyVersion(rows map[string][2]float64) map[string][2]float64 {
	var last uint64
	shown := map[uint64][2]float64{}
	for text, at := range rows {
		var v uint64
		if _, err := fmt.Sscanf(text, "map version %d", &v); err == nil {
			shown[v], last = at, max(last, v)
		}
	}
	all := map[string][2]float64{}
	var next [2]float64
	for v := last; v > 0; v-- {
		if at, ok := shown[v]; ok {
			next = at
		}
		all[fmt.Sprintf("map version %d", v)] = next
	}
	return all
}

// reportShown reports how long it took until things were painted.
func reportShown(b *testing.B, name string, happened map[string]time.Time, rows map[string][2]float64) {
	b.Helper()
	var took []float64
	for text, at := range happened {
		row, shown := rows[text]
		if !shown {
			b.Errorf("%s %q of %s was never on the page", name, text, at.Format(time.StampMilli))
			continue
		}
		took = append(took, row[1]-float64(at.UnixMicro())/1000)
	}
	browser.ReportTimes(b, name, took)
}

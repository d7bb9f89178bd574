package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// BenchmarkConsoleOfALargeGroup measures muster console beside a group of 150 workers with 2,400 chambers in 1,280 slots: how long it
// takes from an event to the painted frame of a browser that shows it, and how many bytes the page loads. In each round a worker is
// drained or let back, which moves about nine slots, and an alarm is raised. Measured are
//
//   - event: from the publication of a group's event to its row in the timeline
//   - alarm: from a notice's publication to its row
//   - plane: from a write of the assignment map, as another client gets it, to a panel that shows that version, or a later one
//
// 150 workers on the machine of the measurement would be measured, too: the rounds are first played by a muster up and recorded. Then a
// stock nats-server gets all that was written and published, at the same pace. Console, server and browser share the machine.
func BenchmarkConsoleOfALargeGroup(b *testing.B) {
	p := &factory{t: b, dir: b.TempDir()}
	played := p.recordRounds(30)
	p.buildServer()
	p.conf = filepath.Join(p.dir, "nats.conf")
	p.url = "nats://" + freeAddress(b)
	text := fmt.Sprintf("listen: %s\njetstream { store_dir: %q }\n", strings.TrimPrefix(p.url, "nats://"), filepath.Join(p.dir, "nats"))
	if err := os.WriteFile(p.conf, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	p.start(nil, p.exe, "-c", p.conf)
	nc := p.connect()
	ready := played.keep(nc)

	url := p.consoleOfRecording()
	ctx, _ := browser.Open(b, url, 1440, 900)
	browser.Eventually(ctx, b, `document.querySelectorAll('.tile').length === 150 && document.querySelectorAll('[data-instance]').length > 0 && document.querySelectorAll('#chamber-list button').length > 0`)
	loaded, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].reduce((sum, e) => sum + e.transferSize, 0)`))
	if err != nil {
		b.Fatal(err)
	}
	browser.Eventually(ctx, b, browser.NoteRows)
	ready()

	events, alarms, maps := &seen{at: map[string]time.Time{}}, &seen{at: map[string]time.Time{}}, &seen{at: map[string]time.Time{}}
	noteMaps(b, p.connect(), maps)
	var raised int
	played.play(b, nc, events, func() { alarms.first(raiseAlarm(b, nc, raised)); raised++ })

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

// recordedMessage is a message that was published while a group was recorded.
type recordedMessage struct {
	after   time.Duration // since the beginning
	subject string
	header  nats.Header
	data    []byte
}

// recording is what a group's workers wrote and published.
type recording struct {
	mu       sync.Mutex
	messages []recordedMessage
	rounds   []time.Duration            // when each began
	first    map[string]recordedMessage // by subject: what the buckets held at the beginning
}

const (
	mapSubject   = "$KV." + defender.Group + "-assignments."
	leaseSubject = "$KV." + defender.Group + "-heartbeats."
)

// recordRounds starts a muster up with 150 defenders and records what they write in rounds of drains. Then it kills it.
func (p *factory) recordRounds(rounds int) *recording {
	p.t.Helper()
	up := p.largeGroup()
	nc := p.connect()
	time.Sleep(8 * time.Second) // 150 that start at once keep two processors busy for a while
	r := &recording{first: map[string]recordedMessage{}}
	began := time.Now()
	take := func(m *nats.Msg) {
		x := recordedMessage{after: time.Since(began), subject: m.Subject, header: nats.Header{}, data: m.Data}
		if ttl := m.Header.Get("Nats-TTL"); ttl != "" { // the rest of the header has conditions, which the first write had to meet
			x.header.Set("Nats-TTL", ttl)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.messages = append(r.messages, x)
	}
	group := partition.Open(nc, defender.Group)
	for _, subject := range []string{mapSubject + ">", leaseSubject + ">", group.EventSubject()} {
		if _, err := nc.Subscribe(subject, take); err != nil {
			p.t.Fatal(err)
		}
	}
	r.hold(p.t, nc)
	for n := range rounds {
		until := time.Now().Add(time.Hour)
		if n%2 == 1 {
			until = time.Time{}
		}
		worker := fmt.Sprintf("defender-%d", n/2%100+20)
		r.rounds = append(r.rounds, time.Since(began))
		if _, err := group.Drain(p.t.Context(), func(l report.Lease) bool { return l.ID == worker }, until); err != nil {
			p.t.Fatal(err)
		}
		time.Sleep(time.Duration(700+n*37%300) * time.Millisecond)
	}
	nc.Close()
	up.kill()
	return r
}

// hold notes what the buckets hold.
func (r *recording) hold(t testing.TB, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for bucket, prefix := range map[string]string{defender.Group + "-assignments": mapSubject, defender.Group + "-heartbeats": leaseSubject} {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		all, err := kv.WatchAll(t.Context(), jetstream.IgnoreDeletes())
		if err != nil {
			t.Fatal(err)
		}
		for e := range all.Updates() {
			if e == nil {
				break
			}
			r.first[prefix+e.Key()] = recordedMessage{subject: prefix + e.Key(), data: e.Value()}
		}
		_ = all.Stop()
	}
}

// keep has the servers hold what the buckets held at the beginning, until the function that it returns is called.
func (r *recording) keep(nc *nats.Conn) func() {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, m := range r.first {
				_ = nc.Publish(m.subject, m.data)
			}
			select {
			case <-end:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	return func() { close(end); <-ended }
}

// play publishes the messages at the pace of the recording, and calls round when a round begins. It notes when events were published
// that have a row in the timeline.
func (r *recording) play(b *testing.B, nc *nats.Conn, into *seen, round func()) {
	b.Helper()
	began, next := time.Now(), 0
	for _, m := range r.messages {
		time.Sleep(m.after - time.Since(began))
		for next < len(r.rounds) && r.rounds[next] <= m.after {
			round()
			next++
		}
		if !strings.HasPrefix(m.subject, "$KV.") {
			var e event.Event
			if err := json.Unmarshal(m.data, &e); err != nil {
				b.Fatal(err)
			}
			e.Time = time.Now()
			if row, ok := groupview.MomentOf(e); ok {
				into.first(row.Text, e.Time)
			}
			m.data, _ = json.Marshal(e)
		}
		if err := nc.PublishMsg(&nats.Msg{Subject: m.subject, Header: m.header, Data: m.data}); err != nil {
			b.Fatal(err)
		}
	}
}

// largeGroup starts a muster up with 150 defenders. It returns once all of them are stable.
func (p *factory) largeGroup() *program {
	p.t.Helper()
	at := freeAddress(p.t)
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.url = "nats://" + at
	_, port, _ := strings.Cut(at, ":")
	up := p.start([]string{asMuster + "=1"}, exe, "up", "--defenders", "150", "--chambers", "2400", "--slots", "1280", "--rate", "30", "--busy", "--dir", p.dir, "--http", "", "--nats-port", port)
	p.eventually("150 defenders", func() error {
		if text := up.text(); !strings.Contains(text, "150 defenders STABLE") {
			return fmt.Errorf("up wrote %q", text[max(0, len(text)-300):])
		}
		return nil
	})
	return up
}

// connect connects to the servers as nobody in particular.
func (p *factory) connect() *nats.Conn {
	p.t.Helper()
	var nc *nats.Conn
	p.eventually("a connection", func() (err error) {
		nc, err = nats.Connect(p.url)
		return err
	})
	p.t.Cleanup(nc.Close)
	return nc
}

// consoleOfRecording starts the console over all that up left, and returns its address.
func (p *factory) consoleOfRecording() (url string) {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	served := p.start([]string{asMuster + "=1", "CLUSTER=fab"}, exe, "console", "--nats", p.url, "--store", filepath.Join(p.dir, "fdc.db"), "--nodes", filepath.Join(p.dir, "nodes"), "--http", "127.0.0.1:0")
	address := regexp.MustCompile(`Console: (http://\S+)`)
	p.eventually("the console's address", func() error {
		m := address.FindStringSubmatch(served.text())
		if m == nil {
			return fmt.Errorf("it wrote %q", served.text())
		}
		url = m[1]
		return nil
	})
	return url
}

// noteMaps notes when each version of the assignment map came from the servers, to a client that does nothing else.
func noteMaps(b *testing.B, nc *nats.Conn, into *seen) {
	b.Helper()
	maps, err := partition.Open(nc, defender.Group).WatchMap(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	before := (<-maps).Version // what is held at the beginning
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

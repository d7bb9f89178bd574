package console

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/browser"
)

// fab is a made-up installation that a test can change.
type fab struct {
	mu      sync.Mutex
	nodes   NodePlane
	workers WorkerPlane
}

func (f *fab) nodePlane(context.Context) (NodePlane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes, nil
}

func (f *fab) workerPlane(context.Context) (WorkerPlane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers, nil
}

func (f *fab) change(c *Console, by func(*fab)) {
	f.mu.Lock()
	by(f)
	f.mu.Unlock()
	c.Changed()
}

func newFab(now time.Time) *fab {
	cpu := 0.62
	f := &fab{nodes: NodePlane{At: now, Min: 2, Max: 10, CPU: &cpu,
		Pools:   []Pool{{Name: "general", Weight: 10, Nodes: 5, Spot: 5, Limits: "no limit"}, {Name: "batch", Limits: "8 nodes", Held: "back-off for 1m30s after 2 failures"}},
		Pending: []PendingPod{{Name: "fab/defender", Count: 5, MilliCPU: 500, Memory: 512 << 20}}, Interruptions: []Interruption{},
		Decision: &Decision{At: now, Action: "NOOP", Reason: "COOLDOWN_UP", Detail: "92 s of 300 s since the last action", Gates: []Gate{
			{"pending pods", "5", "> 0", true}, {"pending for", "190 s", ">= 180 s", true}, {"up-cooldown", "92 s", ">= 300 s", false}}}}}
	for i := range 5 {
		f.nodes.Nodes = append(f.nodes.Nodes, Node{Instance: fmt.Sprintf("i-0a%02d", i), Name: fmt.Sprintf("i-0a%02d", i), Zone: "eu-central-1" + string("ab"[i%2]), Type: "m5.large", Market: "spot", Pool: "general",
			State: NodeReady, Launched: now.Add(-time.Duration(i+1) * time.Hour), Pods: 8 + i, Room: 35, CostHour: 0.04})
	}
	f.workers = WorkerPlane{At: now, Group: "defender", Leader: "defender-0", Epoch: 3, Version: 12, Expected: 45, Keys: 2400}
	for i := range 40 {
		f.workers.Workers = append(f.workers.Workers, Worker{ID: fmt.Sprintf("defender-%d", i), Pod: fmt.Sprintf("pod-%03d", i), Node: fmt.Sprintf("i-0a%02d", i%5), State: "STABLE", Leading: i == 0, Slots: 32, Keys: 60})
	}
	for s := range 1280 {
		f.workers.Owners = append(f.workers.Owners, int32(s%40))
		f.workers.Next = append(f.workers.Next, -1)
	}
	return f
}

func charts(now time.Time) func(context.Context, string, string) (Charts, error) {
	return func(_ context.Context, tool, chamber string) (Charts, error) {
		random := rand.New(rand.NewPCG(1, 2))
		s := Series{SVID: "RF_Tuner", Step: "4", Stat: "mean", Unit: "V"}
		for i := range 60 {
			v, lower, centre, upper := 10+random.NormFloat64(), 7.0, 10.0, 13.0
			p := Point{At: now.Add(time.Duration(i-60) * time.Minute), Context: fmt.Sprintf("lot-%d", i), Lower: &lower, Centre: &centre, Upper: &upper}
			if i == 41 {
				v = 14.2
				p.Flags = []string{"beyond 3 sigma"}
			}
			p.Value = &v
			s.Points = append(s.Points, p)
		}
		return Charts{Tool: tool, Chamber: chamber, Owner: "defender-7", Slot: 311, Series: []Series{s}, Alarms: []Alarm{{ID: "1", At: now, Text: "RF_Tuner mean beyond 3 sigma", State: "open"}}}, nil
	}
}

func TestAPersonSeesBothPlanesAndWhatHappensToThem(t *testing.T) {
	now := time.Now()
	f := newFab(now)
	c, s := serve(t, Options{Title: "fab 2", Nodes: f.nodePlane, Workers: f.workerPlane, Charts: charts(now), Token: "secret",
		Act: func(context.Context, Command) error { return nil },
		Chambers: func(context.Context, string, int) ([]ChamberInfo, error) {
			return []ChamberInfo{{Tool: "tool001", Chamber: "chamber1", Alarms: 1}, {Tool: "tool001", Chamber: "chamber2"}}, nil
		}})
	for i := range 30 {
		c.Say(Moment{Plane: "workers", Kind: "slot-acquired", Subject: "defender-1", Text: fmt.Sprintf("defender-1 acquired slot %d", i)})
		c.SlotMoved(SlotMove{Slot: i, From: "defender-2", To: "defender-1", At: now, Pause: time.Duration(20+i) * time.Millisecond})
	}
	ctx, faults := browser.Open(t, s.URL, 1360, 900)

	// What is there at first, with why nothing is done.
	browser.Eventually(ctx, t, `document.querySelectorAll('[data-instance]').length === 5 && document.querySelectorAll('[data-worker]').length === 40`)
	browser.Eventually(ctx, t, `document.getElementById('verdict').textContent.includes('92 s of 300 s since the last action')`)
	browser.Eventually(ctx, t, `document.getElementById('health').textContent.includes('5 pods pending')`)
	browser.Eventually(ctx, t, `document.querySelectorAll('#move-rows tr').length === 30`)
	browser.Click(ctx, t, `#chamber-list button`)
	browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`.chart svg`)))
	browser.Eventually(ctx, t, `document.querySelectorAll('.chart .flag').length === 1`)
	browser.Picture(ctx, t, "made-up-at-first")

	// A scale-up begins, a node comes, slots move.
	f.change(c, func(f *fab) {
		f.nodes.Decision = nil
		f.nodes.Action = &Action{ID: "1730001600-abc", Kind: "scale-up", Started: now, Until: now.Add(10 * time.Minute), Phases: []Phase{{"begin", "done", "1 requested"}, {"launch", "done", "1 of 1"}, {"verify: joined and Ready", "now", "0 of 1"}, {"complete", "todo", ""}}}
		f.nodes.Nodes = append(append([]Node(nil), f.nodes.Nodes...), Node{Instance: "i-0new", Zone: "eu-central-1b", Type: "m5.large", Market: "spot", State: NodeLaunching, Launched: now})
		f.nodes.Interruptions = []Interruption{{Instance: "i-0a00", Kind: "warning", Opened: now, Deadline: now.Add(110 * time.Second), Phases: []Phase{{"workers told to hand off", "done", ""}, {"replacement", "now", "i-0new launched, not Ready yet"}, {"drain", "todo", ""}}}}
		nodes := append([]Node(nil), f.nodes.Nodes...)
		nodes[0].State, nodes[0].Deadline = NodeInterrupted, now.Add(110*time.Second)
		f.nodes.Nodes = nodes
		next := append([]int32(nil), f.workers.Next...)
		for s := range 60 {
			next[s*7] = 39
		}
		f.workers.Next = next
	})
	browser.Eventually(ctx, t, `document.querySelector('[data-instance="i-0new"]')?.dataset.state === 'launching'`)
	browser.Eventually(ctx, t, `document.querySelector('[data-phase="verify: joined and Ready"]')?.className === 'now'`)
	browser.Eventually(ctx, t, `document.getElementById('slots-meta').textContent.includes('60 moving')`)
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}); err != nil {
		t.Fatal(err)
	}
	browser.Picture(ctx, t, "made-up-scale-up-dark")

	// Keys and an action, which asks for confirmation.
	browser.Run(ctx, t, chromedp.KeyEvent("?"), chromedp.WaitVisible(chromedp.CSS(`#keys[open]`)))
	browser.Click(ctx, t, `#keys button`)
	browser.Run(ctx, t, chromedp.KeyEvent("1"))
	browser.Eventually(ctx, t, `document.activeElement.id === 'nodes'`)
	f.change(c, func(f *fab) {
		f.nodes.Action, f.nodes.Paused = nil, &Pause{Since: now.Add(-5 * time.Minute), By: "alice", Reason: "exchanging the switch of zone a"}
		workers := append([]Worker(nil), f.workers.Workers...)
		workers[3].Drained, workers[3].Slots, workers[3].Keys = now.Add(50*time.Minute), 0, 0
		f.workers.Workers = workers
	})
	browser.Eventually(ctx, t, `document.querySelector('.paused')?.textContent.includes('by alice: exchanging the switch of zone a')`)
	browser.Eventually(ctx, t, `document.querySelector('[data-key="undrain-worker defender-3"]') !== null && document.querySelector('[data-key="resume-scaling "]') !== null`)
	browser.Run(ctx, t, chromedp.Click(chromedp.CSS(`[data-worker="defender-5"] button`)), chromedp.WaitVisible(chromedp.CSS(`#ask[open]`)), chromedp.SendKeys(chromedp.CSS(`#ask-reason`), "disk is failing"),
		chromedp.SendKeys(chromedp.CSS(`#ask-by`), "bob"), chromedp.SendKeys(chromedp.CSS(`#ask-token`), "secret"))
	browser.Picture(ctx, t, "made-up-ask")
	browser.Click(ctx, t, `#ask-go`)
	browser.Run(ctx, t, chromedp.WaitNotVisible(chromedp.CSS(`#ask`)))
	browser.Eventually(ctx, t, `document.getElementById('events').textContent.includes('drain-worker defender-5: disk is failing (bob)')`)

	// A narrow screen shows everything without scrolling sideways.
	browser.Run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	browser.Eventually(ctx, t, `document.documentElement.scrollWidth <= 390`)
	browser.Picture(ctx, t, "made-up-narrow")
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
}

func TestADayOfEventsDoesNotSlowThePage(t *testing.T) {
	c, s := serve(t, Options{})
	for i := range 150_000 {
		c.Say(Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("event %d", i)})
	}
	ctx, faults := browser.Open(t, s.URL, 1000, 800)
	browser.Eventually(ctx, t, `document.querySelectorAll('#events li').length > 50`)
	rows, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll('#events li').length`))
	if err != nil {
		t.Fatal(err)
	}
	if rows > 400 {
		t.Errorf("%d rows in the document: it grows with the day", rows)
	}
	// However often older ones are asked for, and whatever comes meanwhile.
	for range 8 {
		browser.Eventually(ctx, t, `(document.getElementById('older').click(), true)`)
		for i := range 500 {
			c.Say(Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("later event %d", i)})
		}
	}
	browser.Eventually(ctx, t, `document.querySelectorAll('#events li').length === 1000 && document.getElementById('older').hidden`)
	browser.Eventually(ctx, t, `document.querySelectorAll('*').length < 6000`)
	// What is sought is found, however long ago it was.
	browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS(`#event-find`), "event 98765"))
	browser.Eventually(ctx, t, `document.querySelectorAll('#events li').length === 1 && document.querySelector('#events li').textContent.includes('event 98765')`)
	browser.Eventually(ctx, t, `((find) => { find.value = ''; return find.dispatchEvent(new Event('input')); })(document.getElementById('event-find'))`)
	browser.Eventually(ctx, t, `document.querySelectorAll('#events li').length > 50`)
	c.Say(Moment{Plane: "nodes", Kind: "scaleUp.begun", Text: "the newest of all"})
	browser.Eventually(ctx, t, `document.querySelector('#events li').textContent.includes('the newest of all')`)
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
}

// TestOlderEventsStayShown: a console that fell behind, and loads its state again, shows the same number of rows as before, each event once and in order.
func TestOlderEventsStayShown(t *testing.T) {
	c, s := serve(t, Options{})
	said := 0
	say := func(n int) {
		for range n {
			c.Say(Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("event %d", said)})
			said++
		}
	}
	say(5000)
	ctx, faults := browser.Open(t, s.URL, 1000, 800)
	browser.Eventually(ctx, t, `document.querySelectorAll('#events li').length > 50`)
	browser.Eventually(ctx, t, `(() => { for (let i = 0; i < 8; i++) document.getElementById('older').click(); return true; })()`)
	all := func() {
		t.Helper()
		browser.Eventually(ctx, t, fmt.Sprintf(`((rows) => rows.length === 1000 && document.getElementById('older').hidden
			&& rows.every((row, i) => row.textContent.endsWith('event ' + (%d - i))))([...document.querySelectorAll('#events li')])`, said-1))
	}
	all()

	// More than the page is sent, all at once: the page can't keep up, however fast it is.
	c.mu.Lock()
	for p := range c.pages {
		p.behind, p.gap = nil, true
	}
	c.mu.Unlock()
	say(5 * maxBacklog)
	all()
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
}

// BenchmarkEventToScreen measures from an event in the program to the row in the document of a browser that looks, and to the frame
// in which it is painted: with nothing before it, and with a day of events before it. Both clocks are the machine's.
func BenchmarkEventToScreen(b *testing.B) {
	for _, before := range []int{0, 200_000} {
		b.Run(fmt.Sprintf("before=%d", before), func(b *testing.B) {
			c, s := serve(b, Options{})
			for i := range before {
				c.Say(Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("event %d", i)})
			}
			ctx, _ := browser.Open(b, s.URL, 1280, 900)
			browser.Eventually(ctx, b, browser.NoteRows)
			var said []time.Time
			for n := 0; b.Loop(); n++ {
				said = append(said, time.Now())
				c.Say(Moment{Plane: "nodes", Kind: "k", Text: fmt.Sprintf("moment %d.", n)})
				time.Sleep(time.Duration(20+rand.IntN(30)) * time.Millisecond) // at any moment of a frame
			}
			browser.ReportRows(ctx, b, said, func(n int) string { return fmt.Sprintf("moment %d.", n) })
		})
	}
}

// BenchmarkPlaneToScreen measures the same of a change of the worker plane, 40 workers with 1,280 slots, which is read again.
func BenchmarkPlaneToScreen(b *testing.B) {
	f := newFab(time.Now())
	c, s := serve(b, Options{Nodes: f.nodePlane, Workers: f.workerPlane})
	ctx, _ := browser.Open(b, s.URL, 1280, 900)
	browser.Eventually(ctx, b, browser.NoteRows)
	var changed []time.Time
	for n := 0; b.Loop(); n++ {
		changed = append(changed, time.Now())
		f.change(c, func(f *fab) { f.workers.Version = uint64(100 + n) })
		time.Sleep(time.Duration(150+rand.IntN(50)) * time.Millisecond) // those that come together would be shown together
	}
	browser.ReportRows(ctx, b, changed, func(n int) string { return fmt.Sprintf("map version %d", 100+n) })
}

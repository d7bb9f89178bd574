package console

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/component"
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
	f := &fab{nodes: NodePlane{At: now, Min: 2, Max: 10, CPU: &cpu, Pending: []PendingPod{{Name: "fab/defender", Count: 5, MilliCPU: 500, Memory: 512 << 20}}, Interruptions: []Interruption{},
		Decision: &Decision{At: now, Action: "NOOP", Reason: "COOLDOWN_UP", Detail: "92 s of 300 s since the last action", Gates: []Gate{
			{"pending pods", "5", "> 0", true}, {"pending for", "190 s", ">= 180 s", true}, {"up-cooldown", "92 s", ">= 300 s", false}}}}}
	for i := range 5 {
		f.nodes.Nodes = append(f.nodes.Nodes, Node{Instance: fmt.Sprintf("i-0a%02d", i), Name: fmt.Sprintf("i-0a%02d", i), Zone: "eu-central-1" + string("ab"[i%2]), Type: "m5.large", Market: "spot",
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

// browse opens a headless browser on a page, or skips the test where there is none.
func browse(t testing.TB, url string, width, height int64) (context.Context, func() []string) {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("MUSTER_REQUIRE") == "all" {
			t.Fatal("there is no Chromium on this machine and MUSTER_REQUIRE=all")
		}
		t.Skip("there is no Chromium on this machine: install it to test the console as people see it")
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatalf("asking %s for its version: %v", path, err)
	}
	fields := strings.Fields(string(version)) // Chromium 150.0.1 built on ...
	if len(fields) < 2 {
		t.Fatalf("%s tells %q of its version", path, version)
	}
	component.Using(t, "Chromium", fields[1])
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(int(width), int(height)))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), o...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(stop)
	var mu sync.Mutex
	var faults []string
	if err := chromedp.Listen(ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			faults = append(faults, ev.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.EntryLevelError {
				faults = append(faults, ev.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatalf("asking for the browser's log: %v", err)
	}
	run(ctx, t, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(".link.live")))
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), faults...)
	}
}

// picture writes a screenshot where $MUSTER_SCREENSHOTS names a directory.
func picture(ctx context.Context, t testing.TB, name string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[int](`(scrollTo(0, 0), 0)`)); err != nil {
		t.Fatal(err)
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatalf("screenshot of %s: %v", name, err)
	}
	if len(png) < 10_000 {
		t.Errorf("the screenshot of %s has %d bytes: the page is empty", name, len(png))
	}
	if dir := os.Getenv("MUSTER_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func run(ctx context.Context, t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until an expression is true in the page.
func eventually(ctx context.Context, t testing.TB, expression string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(15*time.Second))); err != nil {
		t.Fatalf("never true in the page: %s (%v)", expression, err)
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
		c.HandedOver(Handover{Slot: i, From: "defender-2", To: "defender-1", At: now, Pause: time.Duration(20+i) * time.Millisecond})
	}
	ctx, faults := browse(t, s.URL, 1360, 900)

	// What is there at first, with why nothing is done.
	eventually(ctx, t, `document.querySelectorAll('[data-instance]').length === 5 && document.querySelectorAll('[data-worker]').length === 40`)
	eventually(ctx, t, `document.getElementById('verdict').textContent.includes('why not: COOLDOWN_UP')`)
	eventually(ctx, t, `document.getElementById('health').textContent.includes('5 pods pending')`)
	eventually(ctx, t, `document.querySelectorAll('#handover-rows tr').length === 30`)
	run(ctx, t, chromedp.Click(chromedp.CSS(`#chamber-list button`)), chromedp.WaitVisible(chromedp.CSS(`.chart svg`)))
	eventually(ctx, t, `document.querySelectorAll('.chart .flag').length === 1`)
	picture(ctx, t, "at-first")

	// A scale-up begins, a node comes, slots move.
	f.change(c, func(f *fab) {
		f.nodes.Decision = nil
		f.nodes.Action = &Action{ID: "1730001600-abc", Kind: "scale-up", Started: now, Until: now.Add(10 * time.Minute), Phases: []Phase{{"begin", "done", "1 requested"}, {"launch", "done", "1 of 1"}, {"verify: joined and Ready", "now", "0 of 1"}, {"complete", "todo", ""}}}
		f.nodes.Nodes = append(append([]Node(nil), f.nodes.Nodes...), Node{Instance: "i-0new", Zone: "eu-central-1b", Type: "m5.large", Market: "spot", State: NodeLaunching, Launched: now})
		f.nodes.Interruptions = []Interruption{{Instance: "i-0a00", Kind: "warning", Opened: now, Deadline: now.Add(110 * time.Second), Phases: []Phase{{"workers told to hand over", "done", ""}, {"replacement", "now", "i-0new launched, not Ready yet"}, {"drain", "todo", ""}}}}
		nodes := append([]Node(nil), f.nodes.Nodes...)
		nodes[0].State, nodes[0].Deadline = NodeInterrupted, now.Add(110*time.Second)
		f.nodes.Nodes = nodes
		next := append([]int32(nil), f.workers.Next...)
		for s := range 60 {
			next[s*7] = 39
		}
		f.workers.Next = next
	})
	eventually(ctx, t, `document.querySelector('[data-instance="i-0new"]')?.dataset.state === 'launching'`)
	eventually(ctx, t, `document.querySelector('[data-phase="verify: joined and Ready"]')?.className === 'now'`)
	eventually(ctx, t, `document.getElementById('slots-meta').textContent.includes('60 moving')`)
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}); err != nil {
		t.Fatal(err)
	}
	picture(ctx, t, "scale-up-dark")

	// Keys and an action, which asks for confirmation.
	run(ctx, t, chromedp.KeyEvent("?"), chromedp.WaitVisible(chromedp.CSS(`#keys[open]`)), chromedp.Click(chromedp.CSS(`#keys button`)), chromedp.KeyEvent("1"))
	eventually(ctx, t, `document.activeElement.id === 'nodes'`)
	run(ctx, t, chromedp.Click(chromedp.CSS(`[data-worker="defender-5"] button`)), chromedp.WaitVisible(chromedp.CSS(`#ask[open]`)), chromedp.SendKeys(chromedp.CSS(`#ask-reason`), "disk is failing"), chromedp.SendKeys(chromedp.CSS(`#ask-token`), "secret"))
	picture(ctx, t, "ask")
	run(ctx, t, chromedp.Click(chromedp.CSS(`#ask-go`)), chromedp.WaitNotVisible(chromedp.CSS(`#ask`)))
	eventually(ctx, t, `document.getElementById('events').textContent.includes('drain-worker defender-5: disk is failing')`)

	// A narrow screen shows everything without scrolling sideways.
	run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	eventually(ctx, t, `document.documentElement.scrollWidth <= 390`)
	picture(ctx, t, "narrow")
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
}

func TestADayOfEventsDoesNotSlowThePage(t *testing.T) {
	c, s := serve(t, Options{})
	for i := range 150_000 {
		c.Say(Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("event %d", i)})
	}
	ctx, faults := browse(t, s.URL, 1000, 800)
	eventually(ctx, t, `document.querySelectorAll('#events li').length > 50`)
	rows, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll('#events li').length`))
	if err != nil {
		t.Fatal(err)
	}
	if rows > 400 {
		t.Errorf("%d rows in the document: it grows with the day", rows)
	}
	run(ctx, t, chromedp.Click(chromedp.CSS(`#older`)))
	eventually(ctx, t, fmt.Sprintf(`document.querySelectorAll('#events li').length > %d`, rows))
	c.Say(Moment{Plane: "nodes", Kind: "scaleUp.begun", Text: "the newest of all"})
	eventually(ctx, t, `document.querySelector('#events li').textContent.includes('the newest of all')`)
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
}

// BenchmarkEventToScreen measures from an event in the program to its row in the document of a browser that looks.
func BenchmarkEventToScreen(b *testing.B) {
	c, s := serve(b, Options{})
	ctx, _ := browse(b, s.URL, 1000, 800)
	for n := 0; b.Loop(); n++ {
		c.Say(Moment{Plane: "nodes", Kind: "k", Text: fmt.Sprintf("moment %d.", n)})
		eventually(ctx, b, fmt.Sprintf(`document.querySelector('#events li')?.textContent.includes('moment %d.')`, n))
	}
}

package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/internal/component"
)

// views are the addresses of all views with content, and what is there once each is complete.
var views = []struct{ name, address, complete string }{
	{"overview", "#/", `document.querySelectorAll('.tile').length === 12 && document.querySelectorAll('.chart svg').length > 0`},
	{"workers", "#/workers", `document.querySelectorAll('[data-table=workers] tbody tr').length === 12`},
	{"worker", "#/workers/defender-4", `document.querySelectorAll('[data-table=events] tbody tr').length > 0`},
	{"slots", "#/slots", `document.querySelectorAll('[data-table=slots] tbody tr').length > 0`},
	{"slot", "#/slots/17", `document.getElementById('detail').textContent.includes('tool001:chamber1')`},
	{"key", "#/keys/tool001:chamber1", `document.getElementById('detail').textContent.includes('slot17')`},
	{"nodes", "#/nodes", `document.querySelectorAll('[data-table=nodes] tbody tr').length > 0`},
	{"node", "#/nodes/i-0a01", `document.getElementById('detail').textContent.includes('nightly-report-0')`},
	{"decision", "#/decision", `document.querySelectorAll('[data-table=gates] tbody tr').length > 0`},
	{"alarms", "#/alarms", `document.querySelectorAll('[data-table=alarms] tbody tr').length > 0`},
	{"alarm", "#/alarms/tool001/chamber1/lot7.w12", `document.querySelectorAll('#detail svg').length > 0`},
	{"chamber", "#/chambers/tool001/chamber1", `document.querySelectorAll('.chart svg').length > 0`},
	{"load", "#/load", `document.querySelectorAll('#detail .chart path').length > 0`},
	{"plan", "#/plan?without=defender-7", `document.querySelectorAll('[data-table=plan] tbody tr').length > 0`},
	{"dead-letters", "#/dead-letters", `document.getElementById('detail').textContent.includes('no such recipe')`},
	{"events", "#/events", `document.querySelectorAll('[data-table=events] tbody tr').length > 0`},
	{"no-such-worker", "#/workers/defender-99", `document.getElementById('detail').textContent.length > 0`},
}

// violation is what axe-core finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// runAxe has a browser check the document that it shows, and reports what is serious or worse.
func runAxe(ctx context.Context, t *testing.T, where, axe string) {
	t.Helper()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](axe+`; axe.run(document, { resultTypes: ['violations'] }).then((r) => r.passes.length < 10 ? 'only ' + r.passes.length + ' rules applied' : JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var found []violation
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatalf("%s: %v: %s", where, err, text)
	}
	for _, v := range found {
		if v.Impact != "serious" && v.Impact != "critical" {
			t.Logf("%s: %s (%s): %s", where, v.ID, v.Impact, v.Nodes[0].HTML)
			continue
		}
		for _, n := range v.Nodes {
			t.Errorf("%s: %s (%s): %s\n%s\n%s", where, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// TestAccessibility: axe-core finds nothing serious in any view, light and dark, wide and narrow, and nothing is wider than the screen.
func TestAccessibility(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(component.Axe().Fetch(t), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	_, o := askedAt(now)
	o.DeadLetters = func(context.Context) ([]DeadLetter, error) {
		return []DeadLetter{{Number: 7, At: now, Key: "tool001:chamber1", Subject: "dc.trace.tool001.chamber1.lot7", Attempts: 5, Error: "no such recipe", Worker: "defender-3"}}, nil
	}
	c, s := serve(t, o)
	c.Say(Moment{At: now.Add(-time.Minute), Plane: "workers", Kind: "worker-gone", Subject: "defender-0", Level: "bad", Text: "defender-0: defender-4 is gone (connection gone)"})
	c.Say(Moment{At: now, Plane: "nodes", Kind: "scaleUp.failed", Subject: "i-0a01", Level: "warn", Text: "no capacity in zone a"})
	c.SlotMoved(SlotMove{Slot: 4, From: "defender-4", To: "defender-5", At: now, Pause: 512 * time.Millisecond, Takeover: true})
	c.SlotMoved(SlotMove{Slot: 9, From: "defender-1", To: "defender-2", At: now, Pause: time.Millisecond})
	ctx, faults := browser.Open(t, s.URL, 1440, 900)
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int64{{1440, 900}, {390, 844}} {
			shown := fmt.Sprintf("%s-%d", scheme, size[0])
			t.Run(shown, func(t *testing.T) {
				p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
				if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, p); err != nil {
					t.Fatal(err)
				}
				browser.Run(ctx, t, chromedp.EmulateViewport(size[0], size[1]))
				checkViews(ctx, t, s.URL, shown, size[0], string(source))
				checkDialogs(ctx, t, s.URL, shown, string(source))
			})
		}
	}
	for _, f := range faults() {
		if !strings.Contains(f, "404") { // of the worker that there is none of
			t.Errorf("the page reports: %s", f)
		}
	}
}

// checkViews opens every view. With MUSTER_SCREENSHOTS it takes a picture of each.
func checkViews(ctx context.Context, t *testing.T, url, shown string, width int64, axe string) {
	for _, v := range views {
		browser.Run(ctx, t, chromedp.Navigate("about:blank"), chromedp.Navigate(url+"/"+v.address), chromedp.WaitVisible(chromedp.CSS(".link.live")))
		if v.name == "overview" {
			browser.Click(ctx, t, `#chamber-list button`)
		}
		browser.Eventually(ctx, t, v.complete)
		browser.Eventually(ctx, t, fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width))
		runAxe(ctx, t, v.name+"-"+shown, axe)
		if os.Getenv("MUSTER_SCREENSHOTS") != "" {
			browser.Picture(ctx, t, v.name+"-"+shown)
		}
	}
}

// checkDialogs opens the list of keys, and the question before a command.
func checkDialogs(ctx context.Context, t *testing.T, url, shown, axe string) {
	browser.Run(ctx, t, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(".link.live")), chromedp.KeyEvent("?"), chromedp.WaitVisible(chromedp.CSS("#keys[open]")))
	runAxe(ctx, t, "keys-"+shown, axe)
	browser.Click(ctx, t, `#keys button`)
	browser.Run(ctx, t, chromedp.Click(chromedp.CSS(`[data-worker="defender-5"] button`)), chromedp.WaitVisible(chromedp.CSS("#ask[open]")))
	runAxe(ctx, t, "ask-"+shown, axe)
}

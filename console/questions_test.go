package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/partition/report"
)

// askedAt is an installation in the middle of a bad night: a worker failed, another is drained, an alarm is open, pods are pending, and
// the backlog grows.
func askedAt(now time.Time) (*fab, Options) {
	f := small(now, 12)
	f.each(func(w *Worker) {
		switch w.ID {
		case "defender-4":
			w.State, w.Failed, w.Slots, w.Keys = StateFailed, &Failure{At: now.Add(-90 * time.Second), Reason: "connection gone"}, 0, 0
		case "defender-7":
			w.Drained, w.Slots, w.Keys = now.Add(50*time.Minute), 0, 0
		}
	})
	for s, o := range f.workers.Owners { // defender-5 took over what defender-4 had
		if o == 4 {
			f.workers.Owners[s] = 5
		}
	}
	f.nodes.Nodes[0].Goes = true
	f.nodes.Nodes[1].Stays, f.nodes.Nodes[1].Note = "others go first", "fab/nightly-report-0 is protected by a disruption budget"
	f.nodes.Pending = []PendingPod{{Name: "fab/defender", Count: 5}}
	f.nodes.Decision = &Decision{At: now, Action: "NOOP", Reason: "COOLDOWN_UP", Means: "The last action ended less than COOLDOWN_UP_SEC ago.", Then: "1 node launched at 02:14:30 UTC",
		Next:  []Path{{Name: "up", Earliest: now.Add(208 * time.Second), Needs: []string{"the cooldown of a scale-up is over"}}},
		Gates: []Gate{{"up.cooldown", "92s", ">= 300s", false}}}

	alarm := Alarm{ID: "tool001:chamber1 lot7.w12", Tool: "tool001", Chamber: "chamber1", Run: "lot7.w12", At: now.Add(-time.Minute), Text: "Q 111.7 (limit 105.7); most by RF Btm Rfl Pwr, step 5", State: "open"}
	value := func(v float64) *float64 { return &v }
	o := Options{Nodes: f.nodePlane, Workers: f.workerPlane, Charts: charts(now), Token: "secret", Act: func(context.Context, Command) error { return nil }, Sample: 30 * time.Millisecond,
		Chambers: func(context.Context, string, int) ([]ChamberInfo, error) {
			return []ChamberInfo{{Tool: "tool001", Chamber: "chamber1", Alarms: 1}}, nil
		},
		Alarms: func(context.Context) (AlarmCount, error) { return AlarmCount{Open: 1}, nil },
		Load: func(context.Context) (Load, error) {
			at := time.Now()
			grown := at.Sub(now) / (10 * time.Millisecond) // 100 messages per second
			return Load{At: at, Waiting: uint64(1200 + grown), Oldest: now.Add(-42 * time.Second), In: value(160), Out: value(60), P50: value(0.65), P99: value(12.4)}, nil
		},
		Lookups: Lookups{
			Key: func(_ context.Context, key string) (Key, error) {
				tool, chamber, ok := strings.Cut(key, ":")
				if !ok {
					return Key{}, fmt.Errorf("%w: write tool:chamber", ErrUnknownTarget)
				}
				return Key{Key: key, Slot: 17, Known: true, Tool: tool, Chamber: chamber}, nil
			},
			Slot: func(_ context.Context, slot int) (Slot, error) {
				return Slot{Slot: slot, Keys: []string{"tool001:chamber1"}}, nil
			},
			AlarmList: func(context.Context, bool) ([]Alarm, error) { return []Alarm{alarm}, nil },
			Run: func(_ context.Context, tool, chamber, run string) (Run, error) {
				trace := func(name string, shift float64) Trace {
					return Trace{Run: name, Seconds: []float64{0, 1, 2, 3}, Values: []*float64{value(1 + shift), value(2 + shift), nil, value(3 + shift)}}
				}
				return Run{Tool: tool, Chamber: chamber, Run: run, End: now, Recipe: "etch-a", State: "alarm", Score: 3.1, ScoreLimit: 2.5, Violated: 1,
					Multivariate: &Multivariate{T2: 2.896, T2Limit: 7.872, Q: 111.7, QLimit: 105.7, By: []Contribution{{"RF Btm Rfl Pwr", 5, "mean", 0.62}}},
					Violations:   []Violation{{"RF Btm Rfl Pwr", 5, "mean", 9.1, 2, 4, 6, 5.1}},
					Overlays:     []Overlay{{SVID: "RF Btm Rfl Pwr", Traces: []Trace{trace("lot6.w1", 0), trace("lot6.w2", 0.1), trace(run, 2)}}}}, nil
			},
			Preview: func(_ context.Context, w WhatIf) (report.Forecast, error) {
				v := report.Forecast{Version: 13, Slots: 384, Reasons: []string{}, LowerBound: 1, Moves: []report.ForecastMove{}, Workers: []report.ForecastWorker{}}
				if w.Without != "" {
					v.Reasons = []string{"1 worker failed"}
					v.Moves = []report.ForecastMove{{Slot: 17, From: w.Without, To: "defender-2", Load: 3, Why: "its owner failed"}}
				}
				return v, nil
			}}}
	return f, o
}

// TestQuestions asks what a person asks who is woken at 3 a.m. Each answer has an address, which is opened as somebody would who was sent it.
func TestQuestions(t *testing.T) {
	now := time.Now()
	_, o := askedAt(now)
	c, s := serve(t, o)
	began := now.Add(-6 * time.Hour)
	c.Say(Moment{At: began.Add(-time.Minute), Plane: "workers", Kind: "map-published", Text: "before the time that is asked for"})
	c.Say(Moment{At: began, Plane: "workers", Kind: "worker-gone", Subject: "defender-0", Level: "bad", Text: "defender-0: defender-4 is gone (connection gone)"})
	c.Say(Moment{At: began.Add(time.Hour), Plane: "nodes", Kind: "scaleUp.begun", Subject: "i-0a01", Text: "after it"})
	c.Say(Moment{At: began.Add(time.Second), Plane: "workers", Kind: "map-published", Subject: "defender-44", Text: "about defender-44"})
	for slot := range 3 {
		c.SlotMoved(SlotMove{Slot: 4 + 12*slot, From: "defender-4", To: "defender-5", At: began, Pause: 512 * time.Millisecond, Takeover: true})
	}
	c.SlotMoved(SlotMove{Slot: 9, From: "defender-1", To: "defender-2", At: now, Pause: time.Millisecond})
	ctx, faults := browser.Open(t, s.URL, 1360, 900)
	// opened goes to an address from nowhere, and waits for what it has to show.
	opened := func(address string, shows ...string) {
		t.Helper()
		browser.Run(ctx, t, chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL+"/"+address))
		for _, expression := range shows {
			browser.Eventually(ctx, t, expression)
		}
	}
	says := func(words string) string {
		return fmt.Sprintf(`document.getElementById('detail').textContent.includes(%q)`, words)
	}
	rows := func(table string) string {
		return fmt.Sprintf(`document.querySelectorAll('[data-table=%s] tbody tr')`, table)
	}
	number := func(name string) string {
		return fmt.Sprintf(`document.querySelector('[data-number=%s] dd')?.textContent`, name)
	}

	t.Run("how much is waiting and since when, and is capacity enough", func(t *testing.T) {
		opened("#/load", says("Capacity is not enough: messages wait, and the backlog grows by"), says("42s ago")+`||`+says("43s ago")+`||`+says("44s ago")+`||`+says("45s ago"), says("160 per second"), says("p50 0.65 ms, p99 12 ms"),
			says("10 of 12 serve, 1 drained"), // the failed worker and the drained one serve nothing
			`document.querySelectorAll('#detail .chart path').length === 5`)
		browser.Eventually(ctx, t, `Number(`+number("waiting")+`.replace(',', '')) > 1200 && `+number("in")+` === '160/s' && `+number("out")+` === '60/s' && `+number("latency")+` === '12 ms' && `+number("alarms")+` === '1' && /4\ds/.test(`+number("oldest")+`)`)
		browser.Eventually(ctx, t, `document.getElementById('load').getBoundingClientRect().top < 40`) // on the first line
	})
	t.Run("which worker failed and what happened to its slots", func(t *testing.T) {
		opened("#/workers", rows("workers")+`[0]?.textContent.startsWith('defender-4failed')`)
		browser.Click(ctx, t, `[data-table=workers] tbody tr:first-child a`)
		browser.Eventually(ctx, t, `location.hash === '#/workers/defender-4' && document.title.includes('defender-4 ·')`)
		browser.Eventually(ctx, t, says("connection gone")+` && `+says("3 takeovers and 0 handoffs from defender-4; it has no slot now")+` && `+rows("moves")+`.length === 3 && `+rows("moves")+`[0].textContent.includes('defender-5takeover512 ms')`)
		browser.Eventually(ctx, t, rows("events")+`.length === 1 && !`+says("about defender-44"))
		browser.Eventually(ctx, t, `(history.back(), true)`)
		browser.Eventually(ctx, t, `location.hash === '#/workers' && `+rows("workers")+`.length === 12`)
	})
	t.Run("where is a key", func(t *testing.T) {
		opened("#/")
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`.link.live`)), chromedp.SendKeys(chromedp.CSS(`#goto-text`), "tool003:chamber2"), chromedp.KeyEvent("\r"))
		browser.Eventually(ctx, t, `location.hash === '#/keys/tool003%3Achamber2' && `+says("slot17")+` && `+says("ownerdefender-5"))
		browser.Click(ctx, t, `#detail a[href="#/slots/17"]`)
		browser.Eventually(ctx, t, says("keystool001:chamber1")+` && document.querySelector('#crumbs').textContent === 'Overview › Slots › Slot 17'`)
		opened("#/keys/nokey", says("write tool:chamber"))
	})
	t.Run("why is no node launched", func(t *testing.T) {
		opened("#/decision", says("The last action ended less than COOLDOWN_UP_SEC ago."), says("pending pods5"), says("1 node launched at 02:14:30 UTC"), says("A scale-up: at the earliest at")+` && `+says("the cooldown of a scale-up is over"), rows("gates")+`.length === 1`)
	})
	t.Run("which node goes and what blocks its drain", func(t *testing.T) {
		opened("#/nodes", rows("nodes")+`[0]?.textContent.includes('goes next')`, rows("nodes")+`[1]?.querySelectorAll('td')[7].textContent === '3'`, rows("nodes")+`[1]?.textContent.includes('others go firstfab/nightly-report-0 is protected')`)
		browser.Eventually(ctx, t, rows("pools")+`[1]?.textContent === 'batch0008 nodesback-off for 1m30s after 2 failures' && `+rows("nodes")+`[0].textContent.includes('general')`)
		opened("#/nodes/i-0a01", says("poolgeneral"), says("a drain is blocked byfab/nightly-report-0"), rows("events")+`.length === 1`, says("workersdefender-1, defender-6, defender-11"))
	})
	t.Run("which chambers alarm, why, and the trace", func(t *testing.T) {
		opened("#/alarms", rows("alarms")+`.length === 1`)
		browser.Click(ctx, t, `[data-table=alarms] a[href^="#/alarms/"]`)
		browser.Eventually(ctx, t, `location.hash === '#/alarms/tool001/chamber1/lot7.w12' && `+says("Q111.7 (limit 105.7)")+` && `+rows("contributions")+`[0]?.textContent.includes('62.0 %') && document.querySelectorAll('[data-overlay] path:not(.lone)').length === 3`)
		// The sample after the gap is a dot wide enough to be seen, of each trace, and no part of a line.
		browser.Eventually(ctx, t, `((dots) => dots.length === 3 && dots.every((p) => /^M[\d.]+ [\d.]+h0$/.test(p.getAttribute('d')) && getComputedStyle(p).strokeLinecap === 'round' && getComputedStyle(p).strokeWidth === '5px'))([...document.querySelectorAll('[data-overlay] .lone')])`)
		browser.Eventually(ctx, t, `document.querySelector('#detail [data-key="acknowledge tool001:chamber1 lot7.w12"]') !== null`)
		browser.Click(ctx, t, `#detail a[href="#/chambers/tool001/chamber1"]`)
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`#chamber .chart svg`)))
		opened("#/chambers/tool001/chamber1")
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`#chamber .chart svg`)))
		browser.Eventually(ctx, t, `document.getElementById('nodes').getBoundingClientRect().height === 0`)
	})
	t.Run("what happened in a time", func(t *testing.T) {
		during := url.Values{"from": {began.Add(-time.Second).UTC().Format(time.RFC3339)}, "to": {began.Add(10 * time.Minute).UTC().Format(time.RFC3339)}}.Encode()
		opened("#/events?"+during, rows("events")+`.length === 2 && `+rows("moves")+`.length === 3`)
		opened("#/events?about=defender-4&"+during, rows("events")+`.length === 1 && document.querySelector('#detail [name=about]').value === 'defender-4'`)
	})
	t.Run("what will the next rebalance move", func(t *testing.T) {
		opened("#/plan", says("The leader would change nothing."))
		browser.Eventually(ctx, t, `((s) => { if (!s?.querySelector('[value=defender-5]')) return false; s.value = 'defender-5'; document.querySelector('#detail form').requestSubmit(); return true; })(document.querySelector('#detail [name=without]'))`)
		browser.Eventually(ctx, t, `location.hash === '#/plan?without=defender-5' && `+says("map version 13: 1 worker failed")+` && `+rows("plan")+`[0]?.textContent.includes('17defender-5defender-2')`)
	})
	t.Run("who drained this worker", func(t *testing.T) {
		opened("#/workers/defender-7", says("drained bynot on this console"))
		command(t, s.URL, `{"name":"drain-worker","target":"defender-7","reason":"disk is failing","by":"bob"}`)
		browser.Eventually(ctx, t, says("drained bybob on this console")+` && `+says("disk is failing")+` && `+rows("events")+`.length === 1`)
		noFaultsBut(t, faults, "404") // of the key that is none
	})
	t.Run("every page fits a phone and loads from nowhere else", func(t *testing.T) {
		browser.Run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
		for _, address := range []string{"", "#/workers", "#/workers/defender-4", "#/slots", "#/slots/17", "#/keys/tool001%3Achamber1", "#/nodes", "#/nodes/i-0a01", "#/decision", "#/alarms", "#/alarms/tool001/chamber1/lot7.w12",
			"#/chambers/tool001/chamber1", "#/load", "#/events", "#/plan?without=defender-5"} {
			opened(address, `document.querySelector('.link.live') !== null && !document.querySelector('#detail > .error') && (VIEW.name === '' || VIEW.asked)`, `document.documentElement.scrollWidth <= 390`)
		}
		v, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`performance.getEntriesByType('resource').every((r) => r.name.startsWith(location.origin) || r.name.startsWith('data:'))`))
		if err != nil || !v {
			t.Errorf("it loads from elsewhere: %v", err)
		}
	})
}

// command asks for a command as the page does.
func command(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/commands", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", body, r.StatusCode)
	}
}

func noFaultsBut(t *testing.T, faults func() []string, known string) {
	t.Helper()
	for _, f := range faults() {
		if !strings.Contains(f, known) {
			t.Errorf("the page reports: %s", f)
		}
	}
}

// TestSize keeps the console small: it loads over any line, and no build step is worth its while.
func TestSize(t *testing.T) {
	t.Parallel()
	files, err := web.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	if sum >= 105_000 {
		t.Errorf("the page has %d bytes, and may have 105,000", sum)
	}
}

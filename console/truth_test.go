package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/browser"
)

// A person sees a crash, a drain and a rebalance as what they are: each test changes the planes and looks at the console.

// small is an installation of workers that all serve, without anything that needs a person.
func small(now time.Time, workers int) *fab {
	f := newFab(now)
	f.nodes.Pending, f.nodes.Decision = []PendingPod{}, &Decision{At: now, Action: "NOOP", Reason: "STEADY", Gates: []Gate{}}
	f.workers.Workers, f.workers.Expected, f.workers.Owners, f.workers.Next = f.workers.Workers[:workers], workers, nil, nil
	for s := range 32 * workers {
		f.workers.Owners, f.workers.Next = append(f.workers.Owners, int32(s%workers)), append(f.workers.Next, -1)
	}
	return f
}

// each changes a copy of the workers: what was shown before is not written to.
func (f *fab) each(change func(*Worker)) {
	list := append([]Worker(nil), f.workers.Workers...)
	for i := range list {
		change(&list[i])
	}
	f.workers.Workers = list
}

const (
	healthText = `document.getElementById('health').textContent`
	severityOf = `document.documentElement.dataset.severity`
	findings   = `document.getElementById('findings').textContent`
)

func tile(id string) string { return fmt.Sprintf(`document.querySelector('[data-worker=%q]')`, id) }

// colourOf is the colour of a worker's tile.
func colourOf(id string) string {
	return fmt.Sprintf(`document.querySelector('[data-worker=%q] b > i')?.style.background`, id)
}

func noFaults(t *testing.T, faults func() []string) {
	t.Helper()
	if got := faults(); len(got) > 0 {
		t.Errorf("the page reports: %s", strings.Join(got, "; "))
	}
}

func text(ctx context.Context, t *testing.T, expression string) string {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestConsole(t *testing.T) {
	t.Run("a failed worker is counted, shown in its place, and critical", func(t *testing.T) {
		now := time.Now()
		f := small(now, 12)
		acknowledged := make(chan Command, 1)
		c, s := serve(t, Options{Title: "fab 2", Nodes: f.nodePlane, Workers: f.workerPlane, Token: "secret",
			Act: func(_ context.Context, cmd Command) error { acknowledged <- cmd; return nil }})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, healthText+`.includes('12 of 12 workers stable') && `+severityOf+` === 'ok'`)
		browser.Eventually(ctx, t, `document.title === 'fab 2 · Muster'`)
		icon := text(ctx, t, `document.querySelector('link[rel=icon]').href`)
		before := text(ctx, t, colourOf("defender-5"))
		f.change(c, func(f *fab) {
			f.each(func(w *Worker) {
				if w.ID == "defender-4" {
					w.State, w.Failed, w.Slots, w.Keys = StateFailed, &Failure{At: now.Add(-12 * time.Second), Reason: "connection gone"}, 0, 0
				}
			})
		})
		browser.Eventually(ctx, t, healthText+`.includes('11 of 12 workers')`)
		browser.Eventually(ctx, t, `/failed (\d\ds|\d+m\d\ds) ago: connection gone/.test(`+tile("defender-4")+`?.textContent)`)
		browser.Eventually(ctx, t, `[...document.querySelectorAll('[data-worker]')].map((x) => x.dataset.worker).join() === [...Array(12).keys()].map((i) => 'defender-' + i).join()`)
		browser.Eventually(ctx, t, severityOf+` === 'critical' && `+findings+`.includes('1 worker failed: defender-4')`)
		browser.Eventually(ctx, t, `document.title.includes('1 worker failed: defender-4')`)
		browser.Eventually(ctx, t, fmt.Sprintf(`document.querySelector('link[rel=icon]').href !== %q`, icon))
		if after := text(ctx, t, colourOf("defender-5")); after != before {
			t.Errorf("defender-5 was %s and is %s", before, after)
		}
		browser.Picture(ctx, t, "made-up-failed")

		// It stays until it is acknowledged, and the expected number stays what it is.
		browser.Click(ctx, t, `[data-key="acknowledge-failure defender-4"]`)
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`#ask[open]`)), chromedp.SendKeys(chromedp.CSS(`#ask-reason`), "known"), chromedp.SendKeys(chromedp.CSS(`#ask-token`), "secret"))
		browser.Click(ctx, t, `#ask-go`)
		if cmd := <-acknowledged; cmd.Name != AcknowledgeFailure || cmd.Target != "defender-4" {
			t.Errorf("the button asks for %+v", cmd)
		}
		f.change(c, func(f *fab) {
			f.workers.Workers = slices.DeleteFunc(slices.Clone(f.workers.Workers), func(w Worker) bool { return w.ID == "defender-4" })
		})
		browser.Eventually(ctx, t, tile("defender-4")+` === null && `+healthText+`.includes('11 of 12 workers')`)
		noFaults(t, faults)
	})

	t.Run("a worker keeps its colour and place when another goes", func(t *testing.T) {
		f := small(time.Now(), 12)
		c, s := serve(t, Options{Workers: f.workerPlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, `document.querySelectorAll('[data-worker]').length === 12`)
		all := `JSON.stringify([...document.querySelectorAll('[data-worker]')].map((x) => [x.dataset.worker, x.querySelector('b > i').style.background]))`
		first := text(ctx, t, all)
		f.change(c, func(f *fab) { // defender-1 is drained and comes last, defender-4 is gone
			f.each(func(w *Worker) {
				if w.ID == "defender-1" {
					w.Drained = time.Now().Add(time.Hour)
				}
			})
			w := f.workers.Workers
			f.workers.Workers = append(append(append([]Worker(nil), w[0], w[2], w[3]), w[5:]...), w[1])
			f.workers.Version++
		})
		browser.Eventually(ctx, t, `document.querySelectorAll('[data-worker]').length === 11`)
		without := strings.Replace(first, `["defender-4",`+strings.SplitN(strings.SplitN(first, `["defender-4",`, 2)[1], "],", 2)[0]+"],", "", 1)
		if now := text(ctx, t, all); now != without {
			t.Errorf("tiles and colours were %s and are %s", first, now)
		}
		browser.Eventually(ctx, t, `new Set([...document.querySelectorAll('[data-worker] b > i')].map((x) => x.style.background)).size === 11`)
		noFaults(t, faults)
	})

	t.Run("open alarms are those of all chambers whatever is searched for", func(t *testing.T) {
		var open atomic.Int64
		open.Store(73)
		c, s := serve(t, Options{Charts: charts(time.Now()), Alarms: func(context.Context) (AlarmCount, error) {
			return AlarmCount{Open: int(open.Load()), Acknowledged: 2}, nil
		}, Chambers: func(_ context.Context, contains string, limit int) ([]ChamberInfo, error) { // more than are listed have alarms
			out := []ChamberInfo{}
			for i := range 73 {
				if x := (ChamberInfo{Tool: fmt.Sprintf("tool%03d", i), Chamber: "chamber1", Alarms: 1}); strings.Contains(x.Tool+":"+x.Chamber, contains) && len(out) < limit {
					out = append(out, x)
				}
			}
			return out, nil
		}})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, healthText+`.includes('73 open alarms') && `+severityOf+` === 'warning'`)
		browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS(`#chamber-find`), "zzz"))
		browser.Eventually(ctx, t, `document.getElementById('chamber-list').textContent.includes('No chamber')`)
		if now := text(ctx, t, healthText); !strings.Contains(now, "73 open alarms") {
			t.Errorf("after a search for zzz the header reads %q", now)
		}
		open.Store(0)
		c.Changed()
		browser.Eventually(ctx, t, `!`+healthText+`.includes('open alarm') && `+severityOf+` === 'ok'`)
		noFaults(t, faults)
	})

	t.Run("takeovers are listed beside handoffs", func(t *testing.T) {
		f := small(time.Now(), 4)
		c, s := serve(t, Options{Workers: f.workerPlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, `document.getElementById('move-rows').textContent.includes('No handoff or takeover is known')`)
		c.SlotMoved(SlotMove{Slot: 7, From: "defender-1", To: "defender-2", At: time.Now(), Pause: 650 * time.Microsecond})
		c.SlotMoved(SlotMove{Slot: 8, From: "defender-1", To: "defender-2", At: time.Now(), Pause: 6200 * time.Millisecond, Takeover: true})
		c.SlotMoved(SlotMove{Slot: 9, To: "defender-2", At: time.Now(), Pause: -1, Takeover: true})
		browser.Eventually(ctx, t, `document.querySelectorAll('[data-move=takeover]').length === 2 && document.querySelectorAll('[data-move=handoff]').length === 1`)
		browser.Eventually(ctx, t, `document.querySelector('[data-move=handoff]').textContent.includes('0.65 ms') && document.getElementById('moves-meta').textContent.includes('pause p50 0.65 ms')`)
		browser.Eventually(ctx, t, `document.getElementById('move-rows').textContent.includes('6.2 s') && document.querySelector('[data-move=takeover]').textContent.includes('unknown')`)
		browser.Eventually(ctx, t, `document.getElementById('h-moves').textContent.includes('Handoffs and takeovers')`)
		noFaults(t, faults)
	})

	t.Run("the slot map is in the order of the owners", func(t *testing.T) {
		f := small(time.Now(), 12)
		f.workers.Owners[13] = -1
		c, s := serve(t, Options{Workers: f.workerPlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		// at points to a cell of the map.
		at := func(i int) string {
			return fmt.Sprintf(`((i) => { const c = document.getElementById('slots'), r = c.getBoundingClientRect(), where = { clientX: r.left + (i %% grid.cols + .5) * grid.cell, clientY: r.top + (Math.floor(i / grid.cols) + .5) * grid.cell };
				c.dispatchEvent(new MouseEvent('mousemove', where)); return document.getElementById('slot-tip').textContent; })(%d)`, i)
		}
		browser.Eventually(ctx, t, `grid?.order.length === 384 && document.getElementById('slots').height > 0`)
		for i, want := range map[int]string{0: "slot 13: no owner", 1: "slot 0: defender-0", 2: "slot 12: defender-0", 33: "slot 1: defender-1", 34: "slot 25: defender-1", 383: "slot 383: defender-11"} {
			browser.Eventually(ctx, t, fmt.Sprintf(`%s === %q`, at(i), want))
		}
		// A bar is where the next worker's begin, whatever the colours are.
		bar := func(i int) string {
			return fmt.Sprintf(`((i) => { const c = document.getElementById('slots'), p = c.getContext('2d').getImageData((i %% grid.cols) * grid.cell * devicePixelRatio, (Math.floor(i / grid.cols) + .5) * grid.cell * devicePixelRatio, 1, 1).data;
				return [...p.slice(0, 3)].join(); })(%d)`, i)
		}
		for i, want := range map[int]bool{1: true, 2: false, 32: false, 33: true, 34: false} {
			if ink := text(ctx, t, bar(i)) == "27,35,48"; ink != want { // --ink
				t.Errorf("a bar at cell %d: %t", i, ink)
			}
		}
		f.change(c, func(f *fab) { // slot 12 has moved to defender-11
			owners := slices.Clone(f.workers.Owners)
			owners[12] = 11
			f.workers.Owners = owners
		})
		browser.Eventually(ctx, t, fmt.Sprintf(`%s === %q`, at(2), "slot 24: defender-0"))
		browser.Eventually(ctx, t, fmt.Sprintf(`%s === %q`, at(352), "slot 12: defender-11"))
		noFaults(t, faults)
	})

	t.Run("three of thirty workers are critical and a rebalance is not", func(t *testing.T) {
		f := small(time.Now(), 30)
		c, s := serve(t, Options{Nodes: f.nodePlane, Workers: f.workerPlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, severityOf+` === 'ok'`)
		f.change(c, func(f *fab) { // a planned move of 225 slots
			f.each(func(w *Worker) {
				if w.ID != "defender-0" {
					w.State = "REBALANCING"
				}
			})
			next := append([]int32(nil), f.workers.Next...)
			for s := range 225 {
				next[s] = 29
			}
			f.workers.Next = next
		})
		browser.Eventually(ctx, t, healthText+`.includes('30 of 30 workers serving') && `+healthText+`.includes('225 slots moving')`)
		if now := text(ctx, t, severityOf); now != "ok" {
			t.Errorf("a planned move is %s: %s", now, text(ctx, t, findings))
		}
		f.change(c, func(f *fab) {
			n := 0
			f.each(func(w *Worker) {
				if w.State = "STABLE"; n >= 3 {
					w.State = "DEGRADED"
				}
				n++
			})
		})
		browser.Eventually(ctx, t, healthText+`.includes('3 of 30 workers stable') && `+severityOf+` === 'critical' && `+findings+`.includes('Only 3 of 30 workers serve')`)
		browser.Eventually(ctx, t, `document.getElementById('severity').textContent === 'Critical'`)
		noFaults(t, faults)
	})

	t.Run("a worker is drained only when it has no slots left", func(t *testing.T) {
		f := small(time.Now(), 4)
		c, s := serve(t, Options{Workers: f.workerPlane, Token: "secret", Act: func(context.Context, Command) error { return nil }})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		left := func(slots int) {
			f.change(c, func(f *fab) {
				f.each(func(w *Worker) {
					if w.ID == "defender-2" {
						w.Drained, w.Slots = time.Now().Add(time.Hour), slots
					}
				})
			})
		}
		left(42)
		browser.Eventually(ctx, t, tile("defender-2")+`?.textContent.includes('draining, 42 slots left')`)
		if now := text(ctx, t, tile("defender-2")+`.textContent`); strings.Contains(now, "drained") {
			t.Errorf("with 42 slots left the tile reads %q", now)
		}
		left(0)
		browser.Eventually(ctx, t, tile("defender-2")+`?.textContent.includes('drained, for')`)
		browser.Eventually(ctx, t, healthText+`.includes('4 of 4 workers stable') && `+healthText+`.includes('1 of them drained') && `+severityOf+` === 'ok'`)
		browser.Eventually(ctx, t, tile("defender-2")+`.querySelector('button').textContent === 'Undrain' && `+tile("defender-1")+`.querySelector('button').textContent === 'Drain'`)
		for _, width := range []int64{1360, 390} {
			browser.Run(ctx, t, chromedp.EmulateViewport(width, 900))
			browser.Eventually(ctx, t, `[...document.querySelectorAll('.tile button')].map((b) => b.getBoundingClientRect()).every((r) => r.width >= 24 && r.height >= 24)`)
			browser.Eventually(ctx, t, `[...document.querySelectorAll('.tile b > span')].every((x) => x.scrollWidth <= x.clientWidth)`) // no name is cut off
			browser.Eventually(ctx, t, `[...document.querySelectorAll('.tile')].every((x) => x.querySelector('button').getBoundingClientRect().right <= x.getBoundingClientRect().right)`)
		}
		noFaults(t, faults)
	})

	t.Run("a heading that is jumped to is below the header", func(t *testing.T) {
		f := small(time.Now(), 12)
		f.nodes.Paused = &Pause{Since: time.Now()} // the header has two rows
		_, s := serve(t, Options{Nodes: f.nodePlane, Workers: f.workerPlane, Charts: charts(time.Now()), Chambers: func(context.Context, string, int) ([]ChamberInfo, error) { return []ChamberInfo{}, nil }})
		ctx, faults := browser.Open(t, s.URL, 1000, 500)
		browser.Eventually(ctx, t, `document.querySelectorAll('[data-worker]').length === 12 && !document.getElementById('findings').hidden`)
		for key, panel := range map[string]string{"4": "workers", "5": "moves", "2": "action", "1": "nodes"} {
			browser.Run(ctx, t, chromedp.KeyEvent(key))
			browser.Eventually(ctx, t, fmt.Sprintf(`document.activeElement.id === %q`, panel))
			browser.Eventually(ctx, t, fmt.Sprintf(`document.getElementById('h-%s').getBoundingClientRect().top >= document.querySelector('header').getBoundingClientRect().bottom`, panel))
		}
		browser.Click(ctx, t, `#findings a`)
		browser.Eventually(ctx, t, `document.getElementById('h-action').getBoundingClientRect().top >= document.querySelector('header').getBoundingClientRect().bottom`)
		noFaults(t, faults)
	})

	t.Run("a decision says in words why nothing is done", func(t *testing.T) {
		now := time.Now()
		f := small(now, 4)
		c, s := serve(t, Options{Nodes: f.nodePlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		gates := []Gate{{"no-action", "1795371026-WU6W", "none in progress", false}, {"up.pending", "0", "> 0", false}, {"down.idle", "0s", ">= 60s", false}}
		decide := func(reason, means, detail string, action *Action) {
			f.change(c, func(f *fab) {
				f.nodes.Decision = &Decision{At: now, Action: "NOOP", Reason: reason, Means: means, Detail: detail, Gates: gates}
				f.nodes.Action = action
			})
		}
		verdict, rows := `document.getElementById('verdict')`, `document.querySelectorAll('#gates tbody tr').length`
		decide("IN_PROGRESS", "An action is in progress.", "1795371026-WU6W", &Action{ID: "1795371026-WU6W", Kind: "scale-up", Started: now})
		browser.Eventually(ctx, t, verdict+`.textContent.includes('A scale-up is in progress') && !`+verdict+`.textContent.includes('Nothing') && `+verdict+`.querySelector('.warn') === null && `+rows+` === 0`)
		decide("METRICS_UNAVAILABLE", "A metric is missing.", "pending-min: not all 36 points of the last 36s are there", nil)
		browser.Eventually(ctx, t, verdict+`.textContent.includes('Waiting for metrics') && `+verdict+`.querySelector('.warn') === null && `+rows+` === 0`)
		decide("PENDING_TOO_SHORT", "Pods are pending, but not yet for PENDING_UP_SEC.", "4s", nil)
		browser.Eventually(ctx, t, verdict+`.textContent.includes('Pods are pending, but not yet for PENDING_UP_SEC.') && `+rows+` === 2`) // what is against a scale-down is of no interest
		decide("IDLE_TOO_SHORT", "The cluster is idle, but not yet for IDLE_DOWN_SEC.", "", nil)
		browser.Eventually(ctx, t, `[...document.querySelectorAll('#gates tbody tr')].every((r) => !r.textContent.includes('up.')) && `+rows+` === 2`)
		noFaults(t, faults)
	})

	t.Run("costs are in dollars with three digits", func(t *testing.T) {
		f := small(time.Now(), 4)
		hour, sofar := 0.0632, 0.00042
		f.nodes.CostPerHour, f.nodes.CostSoFar = &hour, &sofar
		_, s := serve(t, Options{Nodes: f.nodePlane})
		ctx, _ := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, `document.getElementById('nodes-meta').textContent.includes('$0.063 per hour · $0.0004 so far')`)
	})

	t.Run("an alarm's text has the width of a phone", func(t *testing.T) {
		of := func(ctx context.Context, tool, chamber string) (Charts, error) {
			v, err := charts(time.Now())(ctx, tool, chamber)
			v.Alarms[0].Text = "lot7.wafer-12: T² 2.896 (limit 7.872), Q 111.7 (limit 105.7) of 10 components; most by RF Btm Rfl Pwr, step 5"
			return v, err
		}
		_, s := serve(t, Options{Charts: of, Token: "secret", Act: func(context.Context, Command) error { return nil }, Chambers: func(context.Context, string, int) ([]ChamberInfo, error) {
			return []ChamberInfo{{Tool: "tool001", Chamber: "chamber1", Alarms: 1}}, nil
		}})
		ctx, faults := browser.Open(t, s.URL, 390, 844)
		browser.Run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
		browser.Click(ctx, t, `#chamber-list button`)
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`.chart svg`)))
		browser.Eventually(ctx, t, `[...document.querySelectorAll('#charts span, #charts td')].find((x) => x.textContent.includes('Q 111.7')).getBoundingClientRect().width > 300 && document.documentElement.scrollWidth <= 390`)
		browser.Picture(ctx, t, "made-up-alarm-narrow", "#chamber")
		noFaults(t, faults)
	})

	t.Run("a group without a map is starting", func(t *testing.T) {
		f := small(time.Now(), 4)
		f.workers = WorkerPlane{Expected: 4, Workers: []Worker{{ID: "defender-0", State: "CLAIMING_ID"}}}
		c, s := serve(t, Options{Nodes: f.nodePlane, Workers: f.workerPlane})
		ctx, faults := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, severityOf+` === 'starting' && `+healthText+`.includes('0 of 4 workers stable')`)
		f.change(c, func(f *fab) { f.workers = small(time.Now(), 4).workers })
		browser.Eventually(ctx, t, severityOf+` === 'ok' && `+healthText+`.includes('4 of 4 workers stable')`)
		noFaults(t, faults)
	})

	t.Run("a panel that can't be drawn says so and stops no other", func(t *testing.T) {
		f := small(time.Now(), 4)
		f.nodes.Nodes = []Node{{Instance: "i-1", State: NodeReady, Launched: time.Now()}}
		c, s := serve(t, Options{Nodes: f.nodePlane, Workers: f.workerPlane})
		ctx, _ := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, `(panels.nodes = () => { throw new Error("boom"); }, true)`)
		f.change(c, func(f *fab) { f.nodes.Pending = []PendingPod{{Name: "x", Count: 7}}; f.workers.Version++ })
		browser.Eventually(ctx, t, healthText+`.includes('7 pods pending') && document.getElementById('workers-meta').textContent.includes('map version 13')`)
		browser.Eventually(ctx, t, `document.getElementById('page-error').textContent.includes("The console can't show nodes: boom")`)
	})

	t.Run("a lost connection is unknown and not OK", func(t *testing.T) {
		f := small(time.Now(), 4)
		_, s := serve(t, Options{Workers: f.workerPlane})
		ctx, _ := browser.Open(t, s.URL, 1360, 900)
		browser.Eventually(ctx, t, severityOf+` === 'ok'`)
		s.Listener.Close()
		s.CloseClientConnections()
		browser.Eventually(ctx, t, severityOf+` === 'unknown' && document.title.includes('Connection lost')`)
	})
}

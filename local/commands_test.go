package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

const testToken = "correct horse battery staple"

// stagedUp is a muster up that has started everything but its cluster; begin does that and waits until its defenders are STABLE.
func stagedUp(t testing.TB, o Options) (c *Stack, url string, begin func()) {
	t.Helper()
	var out output.Buffer
	o.Seed, o.Dir, o.HTTP, o.Token, o.Out = 1, t.TempDir(), "127.0.0.1:0", testToken, &out
	SetOnNodes(&o)
	ctx, cancel := context.WithCancel(context.Background())
	c, err := Start(ctx, o, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := errors.Join(c.CloseCluster(), c.Close()); err != nil {
			t.Errorf("stopping: %v", err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	url = regexp.MustCompile(`http://\S+`).FindString(out.String())
	if url == "" {
		t.Fatalf("it does not say where the console is: %s", out.String())
	}
	return c, url, func() {
		running.Go(func() {
			if err := ignoreEnd(ctx, onNodes(ctx, c, process)); err != nil {
				t.Errorf("running: %v", err)
			}
		})
		eventually(t, "the defenders are STABLE", func() bool { return strings.Contains(out.String(), "Processing at") })
	}
}

// begunUp is a small muster up whose console takes the token.
func begunUp(t testing.TB) (*Stack, string) {
	t.Helper()
	s, url, begin := stagedUp(t, Options{GroupOptions: GroupOptions{Defenders: 3, Chambers: 30, Slots: 15}})
	begin()
	return s, url
}

// processOf returns the running defender with a stable ID, nil if there is none.
func processOf(d *Defenders, id string) *Process {
	for _, p := range d.Running() {
		families, err := p.Gather()
		if err == nil && fmt.Sprintf("%s-%.0f", defender.Group, Metric(families, "defender_stable_id")) == id {
			return p
		}
	}
	return nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// raise publishes an alarm's notice as the defender of its chamber does.
func raise(t testing.TB, s *Stack, c defender.Chamber, opened string) {
	t.Helper()
	at := time.Now().UTC()
	n := defender.AlarmNotice{Alarm: defender.Alarm{Context: defender.ContextRef{ID: opened, Chamber: c, Recipe: "etch-a", Start: at.Add(-time.Minute), End: at}, State: uchart.Alarm, Reason: "RF_Tuner mean 4.2 sigma"},
		Event: defender.AlarmOpened, Opened: opened, Count: 1, Strategy: "uchart@1", Recipe: "etch-a"}
	b, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Conn.Request(defender.AlarmSubject(c, opened), b, 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

func alarmOfRun(t *testing.T, s *Stack, c defender.Chamber, opened string) defender.AlarmStatus {
	t.Helper()
	list, err := defender.ListAlarms(t.Context(), s.Conn, defender.AlarmListQuery{Chamber: c, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(a defender.AlarmStatus) bool { return a.Opened == opened })
	if i < 0 {
		t.Fatalf("there is no alarm %s of %s", opened, c)
	}
	return list[i]
}

func worker(t *testing.T, s *Stack, id string) (report.Lease, int) {
	t.Helper()
	list, err := partition.Open(s.Conn, defender.Group).Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(m report.Lease) bool { return m.ID == id })
	if i < 0 {
		t.Fatalf("there is no worker %s", id)
	}
	slots := 0
	a, _ := s.seen().now()
	for slot := range a.Slots {
		if a.OwnerOf(slot) == id {
			slots++
		}
	}
	return list[i], slots
}

func record(t *testing.T, s *Stack) nodes.Record {
	t.Helper()
	r, err := s.Cluster.Load().plane.Store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAPersonActsOnThePage does one of each through the page and looks at what the planes themselves have of it.
func TestAPersonActsOnThePage(t *testing.T) {
	s, url := begunUp(t)
	chamber := s.Chambers[7]
	raise(t, s, chamber, "lot7.wafer-12")
	ctx, faults := browser.Open(t, url, 1360, 900)
	answer := func(why string, first bool) {
		t.Helper()
		browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`#ask[open]`)), chromedp.SendKeys(chromedp.CSS(`#ask-reason`), why))
		if first {
			browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS(`#ask-by`), "alice"), chromedp.SendKeys(chromedp.CSS(`#ask-token`), "correct horse"))
			browser.Run(ctx, t, chromedp.KeyEvent("\r"))
			browser.Eventually(ctx, t, `document.getElementById('ask-error').textContent.includes('the token is missing or wrong')`)
			browser.Picture(ctx, t, "wrong-token", "#ask")
			browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS(`#ask-token`), testToken)) // what was wrong is selected
		}
		browser.Run(ctx, t, chromedp.KeyEvent("\r"), chromedp.WaitNotVisible(chromedp.CSS(`#ask`)))
	}

	// Pause, with the keyboard alone.
	browser.Eventually(ctx, t, `document.querySelector('[data-key="pause-scaling "]') !== null`)
	browser.Run(ctx, t, chromedp.Focus(chromedp.CSS(`[data-key="pause-scaling "]`)))
	drawn, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.dataset.drawn`))
	if err != nil {
		t.Fatal(err)
	}
	browser.Eventually(ctx, t, fmt.Sprintf(`Number(document.body.dataset.drawn) > %s + 4`, drawn)) // what ages is redrawn each second
	browser.Eventually(ctx, t, `document.activeElement.dataset.key === 'pause-scaling '`)
	browser.Run(ctx, t, chromedp.KeyEvent("\r"))
	answer("exchanging a switch", true)
	browser.Eventually(ctx, t, `document.querySelector('.paused')?.textContent.includes('by alice: exchanging a switch')`)
	if r := record(t, s); !r.Paused() || r.PausedBy != "alice" || r.PauseReason != "exchanging a switch" {
		t.Errorf("the record says paused since %d by %q: %q", r.PausedSinceEpoch, r.PausedBy, r.PauseReason)
	}
	browser.Eventually(ctx, t, `document.getElementById('verdict').textContent.includes('Scaling is paused')`)
	browser.Eventually(ctx, t, `document.getElementById('events').textContent.includes('scaling.paused')`)

	// Drain a worker, which is let back.
	browser.Click(ctx, t, `[data-key="drain-worker defender-1"]`)
	browser.Picture(ctx, t, "ask", "header", "#ask")
	answer("disk is failing", false)
	browser.Eventually(ctx, t, `document.querySelector('[data-worker="defender-1"]')?.textContent.includes('drained, for')`) // not before it has none
	eventually(t, "defender-1 has no slots", func() bool { _, slots := worker(t, s, "defender-1"); return slots == 0 })
	if m, _ := worker(t, s, "defender-1"); !m.Draining || time.Until(m.DrainEnd) > console.DrainFor {
		t.Errorf("its lease says yielding %t, until %v", m.Draining, m.DrainEnd)
	}
	browser.Eventually(ctx, t, `document.querySelector('[data-worker="defender-1"]').textContent.includes('0 slots')`)
	browser.Picture(ctx, t, "paused", "header", "#nodes", "#action", "#decision", "#workers")

	// Acknowledge an alarm.
	browser.Eventually(ctx, t, `document.querySelector('#chamber-list button.danger') !== null`)
	browser.Click(ctx, t, `#chamber-list button.danger`)
	browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`#charts button`)))
	browser.Click(ctx, t, `#charts button`)
	answer("checking the RF match", false)
	browser.Eventually(ctx, t, `document.getElementById('charts').textContent.includes('alice: checking the RF match')`)
	if a := alarmOfRun(t, s, chamber, "lot7.wafer-12"); a.Acknowledged == nil || a.Acknowledged.By != "alice" || a.Acknowledged.Note != "checking the RF match" {
		t.Errorf("the alarm is %+v", a.Acknowledged)
	}
	browser.Eventually(ctx, t, `document.querySelector('#chamber-list button.danger') === null`)
	browser.Picture(ctx, t, "acknowledged", "#chamber")

	browser.Click(ctx, t, `[data-key="undrain-worker defender-1"]`)
	answer("a new disk", false)
	eventually(t, "defender-1 has slots again", func() bool { m, slots := worker(t, s, "defender-1"); return slots > 0 && !m.Draining })
	browser.Click(ctx, t, `[data-key="resume-scaling "]`)
	answer("the switch is in", false)
	browser.Eventually(ctx, t, `document.querySelector('.paused') === null`)
	if record(t, s).Paused() {
		t.Error("the record is paused yet")
	}
	var kinds []string
	for e, err := range s.Cluster.Load().plane.EventLog.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Kind, "scaling.") {
			kinds = append(kinds, e.Kind)
		}
	}
	if !slices.Equal(kinds, []string{"scaling.paused", "scaling.resumed"}) {
		t.Errorf("logged %v", kinds)
	}
	if got := faults(); len(got) != 1 || !strings.Contains(got[0], "401") { // of the wrong token
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}
	refusals(t, url)
}

// refusals asks for what can't be done.
func refusals(t *testing.T, url string) {
	for _, c := range []struct {
		name, token, body string
		status            int
		says              string
	}{
		{"no token", "", `{"name":"pause-scaling","reason":"x"}`, http.StatusUnauthorized, "token is missing or wrong"},
		{"a wrong token", "correct horse", `{"name":"pause-scaling","reason":"x"}`, http.StatusUnauthorized, "token is missing or wrong"},
		{"an unknown command", testToken, `{"name":"explode","reason":"x"}`, http.StatusBadRequest, `unknown command \"explode\"`},
		{"no reason, and too long a name", testToken, `{"name":"pause-scaling","by":"` + strings.Repeat("x", 101) + `"}`, http.StatusBadRequest, "reason is empty"},
		{"an unknown worker", testToken, `{"name":"drain-worker","target":"defender-99","reason":"x"}`, http.StatusNotFound, "is no worker of group defender"},
		{"no alarm", testToken, `{"name":"acknowledge","target":"lot7","reason":"x"}`, http.StatusNotFound, "names no alarm"},
		{"an unknown chamber's alarm", testToken, `{"name":"acknowledge","target":"tool999:chamber1 lot7","reason":"x"}`, http.StatusNotFound, "no such standing alarm"},
		{"resuming what goes on", testToken, `{"name":"resume-scaling","reason":"x"}`, http.StatusConflict, "scaling is not paused"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/commands", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != c.status || !strings.Contains(b.String(), c.says) {
			t.Errorf("%s: status %d, want %d: %s lacks %q", c.name, r.StatusCode, c.status, b.String(), c.says)
		}
	}
}

// slotOfChamber is the slot of the first chamber.
func slotOfChamber(s *Stack) string {
	c := s.Chambers[0]
	return strconv.Itoa(partition.SlotOf(32, c.Tool, c.Name))
}

// TestAPersonSeesAFailedWorker lets a worker of a running up fail, and looks at the console.
func TestAPersonSeesAFailedWorker(t *testing.T) {
	s, url, begin := stagedUp(t, Options{GroupOptions: GroupOptions{Defenders: 4, Chambers: 30, Slots: 32}, TrafficOptions: TrafficOptions{Rate: 30}, Busy: true})
	begin()
	ctx, faults := browser.Open(t, url, 1360, 900)
	see := func(expression string) { t.Helper(); browser.Eventually(ctx, t, expression) }
	health := func(text string) string {
		return fmt.Sprintf(`document.getElementById('health').textContent.includes(%q)`, text)
	}
	see(health("4 of 4 workers stable"))
	see(`(() => {
		window.saw = {};
		const note = () => {
			const tile = document.querySelector('[data-worker="defender-2"]');
			if (document.documentElement.dataset.severity === 'critical') saw.critical = document.getElementById('findings').textContent;
			if (tile && tile.dataset.state === 'FAILED') saw.tile = tile.textContent;
			if (document.getElementById('health').textContent.includes('3 of 4 workers')) saw.counted = true;
		};
		new MutationObserver(note).observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true });
		return true;
	})()`)
	m := processOf(s.Defenders, "defender-2")
	if m == nil {
		t.Fatal("there is no defender-2")
	}
	m.Kill()
	see(`saw.critical?.includes('1 worker failed: defender-2') && /failed \d+s ago: (connection gone|crash|lease expired)/.test(saw.tile) && saw.counted`)
	if os.Getenv("MUSTER_SCREENSHOTS") != "" { // it is started again after ten seconds
		see(`document.querySelector('[data-worker="defender-2"]').dataset.state === 'FAILED' && document.querySelector('[data-move=takeover]') !== null`)
		browser.Picture(ctx, t, "failed", "header", "#nodes", "#action", "#decision", "#workers", "#moves")
	}
	see(`[...document.querySelectorAll('[data-move=takeover]')].some((r) => r.textContent.includes('defender-2'))`)
	// Its pod starts it again, under this ID or another. Its tile stays in its place, and nothing is critical any more.
	see(health("4 of 4 workers stable") + ` && document.documentElement.dataset.severity !== 'critical'`)
	see(`[...document.querySelectorAll('[data-worker]')].map((x) => x.dataset.worker).join().startsWith('defender-0,defender-1,defender-2,defender-3')`)
	// The pages about one thing answer from the running group.
	for address, says := range map[string]string{
		"#/workers/defender-2":        `takeovers and \d+ handoffs from defender-2`,
		"#/keys/tool001%3Achamber1":   `owner ?defender-\d`,
		"#/slots/" + slotOfChamber(s): `tool001:chamber1`,
		"#/plan?without=defender-1":   `map version \d+: .*\d+ of 32 slots`,
		"#/load":                      `processed[\d.]+ per second`,
		"#/decision":                  `A scale-up: `,
		"#/nodes":                     `a drain is blocked by`,
		"#/events?about=defender-2":   `defender-2 is gone`,
	} {
		see(fmt.Sprintf(`(location.hash = %q, true)`, address))
		see(fmt.Sprintf(`VIEW.asked && new RegExp(%q).test(document.getElementById('detail').textContent)`, says))
	}
	if got := faults(); len(got) > 0 {
		t.Errorf("the console reports: %s", strings.Join(got, "; "))
	}
}

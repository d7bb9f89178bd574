package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestAPersonSeesTheTwoPlanesMeetOnThePage lets node-pressure and a Spot interruption happen in a running up and looks at the page
// for what a person would look for. The pictures in docs/console are of this run: MUSTER_SCREENSHOTS=docs/console.
func TestAPersonSeesTheTwoPlanesMeetOnThePage(t *testing.T) {
	s, url, begin := stagedUp(t, Options{GroupOptions: GroupOptions{Defenders: 8, Chambers: 40, Slots: 96}, TrafficOptions: TrafficOptions{Rate: 60}, Busy: true,
		NodeOptions: NodeOptions{boot: 6 * time.Second, pendingUp: 10 * time.Second, launch: 2 * time.Second}})
	behind, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(httputil.NewSingleHostReverseProxy(behind)) // that can go away while up goes on
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	ctx, faults := browser.Open(t, front.URL, 1280, 900)
	browser.Eventually(ctx, t, noteStates)
	see := func(expression string) { t.Helper(); browser.Eventually(ctx, t, expression) }
	saw := func(what string) { t.Helper(); see(fmt.Sprintf(`window.saw.has(%q)`, what)) }
	picture := func(name string, of ...string) { t.Helper(); browser.Picture(ctx, t, name, of...) }
	// What lasts a moment may be over when a busy machine comes to look: only for a picture it has to be there now.
	glimpse := func(now, name string, of ...string) {
		t.Helper()
		if os.Getenv("MUSTER_SCREENSHOTS") != "" {
			see(now)
			picture(name, of...)
		}
	}
	says := func(id, text string) string {
		return fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, text)
	}

	// Before anything is there.
	see(says("zones", "No nodes"))
	see(says("worker-tiles", "No workers"))
	picture("empty")

	begin()
	cluster := s.Cluster.Load()
	see(`document.querySelectorAll('[data-instance][data-state="ready"]').length === 1`)
	see(`document.querySelectorAll('[data-worker][data-state="STABLE"]').length === 8`)
	see(`[...document.querySelectorAll('[data-worker]')].every((w) => / on i-/.test(w.textContent))`)
	see(says("nodes-meta", "so far"))
	see(says("verdict", "Nothing") + " && " + says("verdict", "needed")) // its readings reach back far enough
	picture("at-first")

	// More defenders are wanted than fit. The decision waits, and says for what; then a node is launched, verified, and the rest join.
	if err := cluster.deploy.scale(t.Context(), 14); err != nil {
		t.Fatal(err)
	}
	saw("pods pending")
	saw("why not PENDING_TOO_SHORT")
	glimpse(says("decision-meta", "PENDING_TOO_SHORT"), "why-not", "header", "#nodes", "#action", "#decision")
	browser.Click(ctx, t, `#gates-more`)
	see(`document.querySelectorAll('#gates tbody tr').length > 20 && document.querySelectorAll('#gates tr.no').length < 20`)
	browser.Click(ctx, t, `#gates-more`)
	glimpse(`document.querySelector('[data-phase="launch"]')?.className === 'now'`, "launching", "#action", "#decision")
	saw("phase begin done")
	saw("phase launch now")
	glimpse(`document.querySelectorAll('[data-instance][data-state="launching"]').length === 1`, "verifying", "header", "#nodes", "#action", "#decision")
	saw("phase verify: joined and Ready now")
	saw("node launching")
	see(`document.querySelectorAll('[data-worker][data-state="STABLE"]').length === 14`)
	see(`document.querySelectorAll('#move-rows tr').length > 10`)
	see(says("action-body", "Last: scaleUp.completed"))
	picture("complete", "#action", "#decision", "#workers", "#moves")

	// A chamber with a fault.
	see(`document.querySelector('#chamber-list button.danger') !== null`)
	browser.Click(ctx, t, `#chamber-list button.danger`)
	browser.Run(ctx, t, chromedp.WaitVisible(chromedp.CSS(`.chart svg`)))
	see(`document.querySelectorAll('.chart .flag').length > 0 && document.querySelectorAll('.chart .limit').length > 0`)
	see(`document.getElementById('charts').textContent.includes('outside')`)
	picture("chamber", "#chamber")

	// A Spot warning, in the dark. The replacement comes, the node is drained, and a pod on it takes its time to end.
	dark(ctx, t, true)
	victim := newestNode(cluster)
	cluster.Region.Simulator.AddPodOn(victim, sim.PodSpec{Name: "fab/nightly-report-0", Grace: 10 * time.Second})
	var handling sync.WaitGroup
	handling.Go(func() { cluster.Interrupt(t.Context(), cluster.Region.Simulator.Announce(nodes.Warning, victim)) })
	saw("node interrupted")
	saw("phase workers told to hand off done")
	glimpse(says("action-body", "Spot warning of "+victim)+` && /1m\d\ds left/.test(document.getElementById('action-body').textContent)`, "interruption-dark", "header", "#nodes", "#action", "#decision", "#workers", "#moves")
	dark(ctx, t, false)
	saw("phase drain now")
	glimpse(`document.querySelector('[data-phase="drain"]')?.className === 'now'`, "draining", "header", "#nodes", "#action", "#decision", "#workers")
	saw("phase drain done")
	handling.Wait()

	// Keys: the place is seen.
	browser.Run(ctx, t, chromedp.KeyEvent("2"))
	see(`document.activeElement.id === 'action' && document.activeElement.matches(':focus-visible')`)
	browser.Run(ctx, t, chromedp.KeyEvent("\t"))
	see(`document.activeElement.dataset.key === 'pause-scaling ' && document.activeElement.matches(':focus-visible')`)
	picture("keyboard", "#action", "#decision")
	browser.Run(ctx, t, chromedp.KeyEvent("?"), chromedp.WaitVisible(chromedp.CSS(`#keys[open]`)))
	browser.Click(ctx, t, `#keys button`)

	// A narrow screen shows everything without scrolling sideways.
	browser.Run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	see(`document.documentElement.scrollWidth <= 390`)
	picture("narrow")
	browser.Run(ctx, t, chromedp.EmulateViewport(1280, 900))
	if got := faults(); len(got) > 0 {
		t.Errorf("the page complains: %s", strings.Join(got, "; "))
	}

	// The console goes away: the page says since when, and does not look alive.
	_ = front.Listener.Close()
	front.CloseClientConnections()
	see(says("lost", "Connection lost"))
	see(`getComputedStyle(document.querySelector('main')).opacity < 1`)
	picture("lost", "header", "#lost", "#nodes", "#action", "#decision")

	// It comes back, and so does the page, by itself.
	again, err := new(net.ListenConfig).Listen(t.Context(), "tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: front.Config.Handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = back.Serve(again) }()
	t.Cleanup(func() { _ = back.Close() })
	see(`document.querySelector('.link.live') !== null && document.getElementById('lost').hidden && getComputedStyle(document.querySelector('main')).opacity === '1'`)
}

// TestAPersonSeesThirtyWorkers looks at a console of the size that up has by itself: nothing is cut off, at any width.
func TestAPersonSeesThirtyWorkers(t *testing.T) {
	s, url, begin := stagedUp(t, Options{GroupOptions: GroupOptions{Defenders: 24, Chambers: 1200, Slots: 640}, TrafficOptions: TrafficOptions{Rate: 40}, Busy: true,
		NodeOptions: NodeOptions{boot: 6 * time.Second, pendingUp: 2 * time.Second}})
	begin()
	ctx, faults := browser.Open(t, url, 1280, 900)
	see := func(expression string) { t.Helper(); browser.Eventually(ctx, t, expression) }
	if err := s.Cluster.Load().deploy.scale(t.Context(), 30); err != nil {
		t.Fatal(err)
	}
	see(`document.getElementById('health').textContent.includes('30 of 30 workers stable') && document.querySelectorAll('[data-move=handoff]').length >= 40`)
	see(`document.getElementById('verdict').textContent.includes('Nothing needed')`)
	for _, width := range []int64{390, 820, 1280} {
		browser.Run(ctx, t, chromedp.EmulateViewport(width, 900))
		see(fmt.Sprintf(`innerWidth === %d && document.documentElement.scrollWidth <= innerWidth`, width))
		see(`[...document.querySelectorAll('.tile b > span')].length === 30 && [...document.querySelectorAll('.tile span')].every((x) => x.scrollWidth <= x.clientWidth + 1)`)
		see(`new Set([...document.querySelectorAll('.tile b > i')].map((x) => x.style.background)).size === 30`)
	}
	browser.Picture(ctx, t, "up", "header", "#nodes", "#action", "#decision", "#workers")
	if got := faults(); len(got) > 0 {
		t.Errorf("the console reports: %s", strings.Join(got, "; "))
	}
}

// newestNode returns the node that was launched last.
func newestNode(t *Cluster) string {
	launched := t.Ledger(sim.Launched, time.Time{})
	return launched[len(launched)-1].Instance
}

// noteStates has the page note in window.saw what it shows, also for a moment.
const noteStates = `(() => {
	window.saw = new Set();
	const note = () => {
		document.querySelectorAll('[data-phase]').forEach((e) => saw.add('phase ' + e.dataset.phase + ' ' + e.className));
		document.querySelectorAll('[data-instance]').forEach((e) => saw.add('node ' + e.dataset.state));
		for (const [id, text, name] of [['moves-meta', 'under way', 'handoffs under way'], ['health', 'pending', 'pods pending'], ['decision-meta', 'PENDING_TOO_SHORT', 'why not PENDING_TOO_SHORT']]) {
			if (document.getElementById(id).textContent.includes(text)) saw.add(name);
		}
	};
	new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
	return true;
})()`

// dark has the browser prefer dark pages, or light ones.
func dark(ctx context.Context, t *testing.T, on bool) {
	t.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[on]
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkEventToScreen measures from an alarm's publication on NATS to its row on the page of a running up, with nothing before it
// and with a day of events before it.
func BenchmarkEventToScreen(b *testing.B) {
	for _, before := range []int{0, 200_000} {
		b.Run(fmt.Sprintf("before=%d", before), func(b *testing.B) {
			s, url, begin := stagedUp(b, Options{GroupOptions: GroupOptions{Defenders: 8, Chambers: 40, Slots: 96}, TrafficOptions: TrafficOptions{Rate: 60}, Busy: true})
			begin()
			for i := range before {
				s.screen.Say(console.Moment{Plane: "workers", Kind: "map-received", Text: fmt.Sprintf("event %d", i)})
			}
			ctx, _ := browser.Open(b, url, 1280, 900)
			browser.Eventually(ctx, b, browser.NoteRows)
			chamber := s.Chambers[7]
			var published []time.Time
			for n := 0; b.Loop(); n++ {
				published = append(published, time.Now())
				raise(b, s, chamber, fmt.Sprintf("lot%d", n))
				time.Sleep(time.Duration(20+rand.IntN(30)) * time.Millisecond) // at any moment of a frame
			}
			browser.ReportRows(ctx, b, published, func(n int) string { return fmt.Sprintf("%s, context lot%d: RF_Tuner mean 4.2 sigma", chamber, n) })
		})
	}
}

// Package browser drives a real browser, headless, over a page as a person would. A machine without one skips the test; with
// MUSTER_REQUIRE=all in the environment it fails instead.
package browser

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/component"
)

// limit is how long a browser may be driven.
const limit = 6 * time.Minute

// Open opens a headless browser on a page, which it waits for to be live, or skips the test where there is none. It returns the
// browser's context, which ends with the test or after six minutes, and what returns the faults that the page had up to now.
func Open(t testing.TB, url string, width, height int64) (context.Context, func() []string) {
	t.Helper()
	return OpenAt(t, url, width, height, ".link.live")
}

// OpenAt is Open for a page that is not live at first: it waits for what a selector finds instead.
func OpenAt(t testing.TB, url string, width, height int64, first string) (context.Context, func() []string) {
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
	version, err := exec.CommandContext(t.Context(), path, "--version").Output()
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
	ctx, stop = context.WithTimeout(ctx, limit)
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
	Run(ctx, t, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(first)))
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), faults...)
	}
}

// Picture takes a screenshot of the whole page or, with selectors, of what holds all those elements. It writes it where
// $MUSTER_SCREENSHOTS names a directory.
func Picture(ctx context.Context, t testing.TB, name string, selectors ...string) {
	t.Helper()
	if len(selectors) == 0 {
		selectors = []string{"html"}
	}
	list, err := json.Marshal(selectors)
	if err != nil {
		t.Fatal(err)
	}
	// Where it is scrolled to, what sticks to the window's edge would cover other things.
	clip, err := chromedp.Run(ctx, chromedp.Evaluate[page.Viewport](`(() => {
		scrollTo(0, 0);
		const all = `+string(list)+`.flatMap((s) => [...document.querySelectorAll(s)]).map((e) => e.getBoundingClientRect()).filter((r) => r.width > 0);
		const x = Math.min(...all.map((r) => r.left)), y = Math.min(...all.map((r) => r.top));
		return { x, y, width: Math.max(...all.map((r) => r.right)) - x, height: Math.max(...all.map((r) => r.bottom)) - y, scale: 1 };
	})()`))
	if err != nil {
		t.Fatalf("screenshot of %s: %v", name, err)
	}
	beyond := true
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &beyond, FromSurface: &beyond, Clip: &clip})
	if err != nil {
		t.Fatalf("screenshot of %s: %v", name, err)
	}
	t.Cleanup(func() { keep(t, name, shot.Data) }) // later: what the page is about is in this process, and must not wait for it
}

// keep checks that a screenshot shows something, and writes it.
func keep(t testing.TB, name string, data []byte) {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("screenshot of %s: %v", name, err)
	}
	small, colours := paletted(full)
	if colours < 10 {
		t.Errorf("the screenshot of %s has %d colours: the page is empty", name, colours)
	}
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		return
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	if err := e.Encode(&b, small); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// paletted returns an image in the 256 colours that it has most of, which makes it a third as large and loses nothing that an eye
// sees: the rest is in the edges of letters. It also returns how many colours there were.
func paletted(full image.Image) (*image.Paletted, int) {
	r := full.Bounds()
	plain := image.NewRGBA(r)
	draw.Draw(plain, r, full, r.Min, draw.Src)
	count := map[color.RGBA]int{}
	at := plain.RGBAAt
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var p color.Palette
	for _, c := range all[:min(256, len(all))] {
		p = append(p, c)
	}
	index := map[color.RGBA]uint8{}
	for _, c := range all {
		index[c] = uint8(p.Index(c))
	}
	out := image.NewPaletted(r, p)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			out.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return out, len(all)
}

// Run takes steps one after another.
func Run(ctx context.Context, t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// Click clicks on the first element that a selector finds, once it is visible. The page may put another element in its
// place between the look and the press: then it looks again, as a person would.
func Click(ctx context.Context, t testing.TB, selector string) {
	t.Helper()
	for {
		err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil {
			return
		}
		replaced := strings.Contains(err.Error(), "Could not find node with given id") || strings.Contains(err.Error(), "not attached")
		if !replaced || ctx.Err() != nil {
			t.Fatalf("clicking on %s: %v", selector, err)
		}
	}
}

// Eventually waits until an expression is true in the page, also in one that the browser is still going to.
func Eventually(ctx context.Context, t testing.TB, expression string) {
	t.Helper()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(2*time.Minute)))
		if err == nil {
			return
		}
		left := strings.Contains(err.Error(), "Cannot find context") || strings.Contains(err.Error(), "context was destroyed") || strings.Contains(err.Error(), "target navigated")
		if !left || ctx.Err() != nil {
			t.Fatalf("never true in the page: %s (%v)", expression, err)
		}
	}
}

// NoteRows is an expression that has the console's page note when a row of its timeline, by its text, or the version of the assignment
// map, as "map version 7", was put into the document, and when the frame after that was painted, in ms of Unix time.
const NoteRows = `(() => {
	window.rows = {};
	const now = () => performance.timeOrigin + performance.now();
	const note = (texts) => {
		const at = now();
		requestAnimationFrame(() => setTimeout(() => texts.forEach((text) => { rows[text] ||= [at, now()]; })));
	};
	const meta = document.getElementById('workers-meta');
	new MutationObserver((all) => note(all.flatMap((m) => [...m.addedNodes]).filter((e) => e.lastChild).map((e) => e.lastChild.textContent)))
		.observe(document.getElementById('events'), { childList: true });
	new MutationObserver(() => note(meta.textContent.match(/map version \d+/) || [])).observe(meta, { childList: true });
	return true;
})()`

// ReportRows waits until rows are on the page that were published at given times, and reports how long it took until they were in the
// document (dom) and painted: median and 99th percentile in ms, and the greatest.
func ReportRows(ctx context.Context, b *testing.B, published []time.Time, text func(n int) string) {
	b.Helper()
	last, err := json.Marshal(text(len(published) - 1))
	if err != nil {
		b.Fatal(err)
	}
	Eventually(ctx, b, `window.rows[`+string(last)+`] !== undefined`)
	rows, err := chromedp.Run(ctx, chromedp.Evaluate[map[string][2]float64](`window.rows`))
	if err != nil {
		b.Fatal(err)
	}
	var dom, painted []float64
	for n, at := range published {
		row, ok := rows[text(n)]
		if !ok {
			b.Fatalf("%q was never on the page", text(n))
		}
		began := float64(at.UnixMicro()) / 1000
		dom, painted = append(dom, row[0]-began), append(painted, row[1]-began)
	}
	ReportTimes(b, "dom", dom)
	ReportTimes(b, "painted", painted)
	b.ReportMetric(0, "ns/op") // mostly what is between them
}

// ReportTimes reports the median, the 99th percentile and the greatest of times in ms.
func ReportTimes(b *testing.B, name string, took []float64) {
	b.Helper()
	if len(took) == 0 {
		b.Fatalf("nothing was measured of %s", name)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], name+"-p50-ms")
	b.ReportMetric(took[len(took)*99/100], name+"-p99-ms")
	b.ReportMetric(took[len(took)-1], name+"-max-ms")
}

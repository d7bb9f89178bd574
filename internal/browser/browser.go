// Package browser drives a real browser, headless, over a page as a person would. A machine without one skips the test; with
// MUSTER_REQUIRE=all in the environment it fails instead.
package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/component"
)

// limit is how long a browser may be driven.
const limit = 2 * time.Minute

// Open opens a headless browser on a page, which it waits for to be live, or skips the test where there is none. It returns the
// browser's context, which ends with the test or after two minutes, and what returns the faults that the page had up to now.
func Open(t testing.TB, url string, width, height int64) (context.Context, func() []string) {
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
	Run(ctx, t, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(".link.live")))
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), faults...)
	}
}

// Picture writes a screenshot where $MUSTER_SCREENSHOTS names a directory.
func Picture(ctx context.Context, t testing.TB, name string) {
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

// Run takes steps one after another.
func Run(ctx context.Context, t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until an expression is true in the page.
func Eventually(ctx context.Context, t testing.TB, expression string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(15*time.Second))); err != nil {
		t.Fatalf("never true in the page: %s (%v)", expression, err)
	}
}

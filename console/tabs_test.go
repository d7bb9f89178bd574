package console

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/muster-dev/muster/internal/browser"
)

// TestManyTabs: a browser opens six connections to a host, and a stream for each tab would take one for as long as the tab is open.
func TestManyTabs(t *testing.T) {
	c, s := serve(t, Options{})
	first, _ := browser.Open(t, s.URL, 800, 600)
	tabs := []func(string){func(expression string) { t.Helper(); browser.Eventually(first, t, expression) }}
	for range 8 {
		tab, stop := chromedp.NewContext(first)
		defer stop()
		browser.Run(tab, t, chromedp.Navigate(s.URL), chromedp.WaitVisible(chromedp.CSS(".link.live")))
		tabs = append(tabs, func(expression string) { t.Helper(); browser.Eventually(tab, t, expression) })
	}
	for n := range 3 {
		c.Say(Moment{Plane: "nodes", Kind: "k", Text: fmt.Sprintf("moment %d.", n)})
		for _, eventually := range tabs {
			eventually(fmt.Sprintf(`document.querySelectorAll('#events li').length === %d && document.querySelector('#events li').textContent.includes('moment %d.')`, n+1, n))
		}
	}
	c.mu.Lock()
	streams := len(c.pages)
	c.mu.Unlock()
	if streams != 1 {
		t.Errorf("nine tabs of a browser have %d streams", streams)
	}
}

// TestSigningIn: a person shows the token once, and the page knows who they are.
func TestSigningIn(t *testing.T) {
	now := time.Now()
	f := newFab(now)
	_, s := serve(t, Options{Users: twoPeople(), Workers: f.workerPlane, Act: func(ctx context.Context, cmd Command) error {
		if cmd.By != "olga" {
			return fmt.Errorf("asked for by %q", cmd.By)
		}
		return nil
	}})
	ctx, _ := browser.OpenAt(t, s.URL, 1000, 800, "#signin[open]")
	browser.Picture(ctx, t, "sign-in", "#signin")
	browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS("#signin-token"), "another-token-0123456"))
	browser.Click(ctx, t, "#signin button")
	browser.Eventually(ctx, t, `document.getElementById('signin-error').textContent.includes('missing or wrong')`)
	browser.Eventually(ctx, t, `((e) => { e.value = ''; return true; })(document.getElementById('signin-token'))`)
	browser.Run(ctx, t, chromedp.SendKeys(chromedp.CSS("#signin-token"), operatorToken))
	browser.Click(ctx, t, "#signin button")
	browser.Eventually(ctx, t, `!document.getElementById('signin').open && document.querySelector('.link.live') && document.getElementById('who').textContent === 'olga, operator'`)
	browser.Run(ctx, t, chromedp.Click(chromedp.CSS(`[data-worker="defender-5"] button`)), chromedp.WaitVisible(chromedp.CSS(`#ask[open]`)), chromedp.SendKeys(chromedp.CSS(`#ask-reason`), "disk is failing"))
	browser.Eventually(ctx, t, `document.getElementById('ask-token').offsetParent === null`)
	browser.Click(ctx, t, `#ask-go`)
	browser.Eventually(ctx, t, `document.getElementById('events').textContent.includes('drain-worker defender-5: disk is failing (olga)')`)
	browser.Click(ctx, t, "#signout")
	browser.Eventually(ctx, t, `document.getElementById('signin').open && document.querySelectorAll('[data-worker]').length === 0`)
}

package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const (
	viewerToken   = "viewer-token-0123456789"
	operatorToken = "operator-token-0123456789"
)

func twoPeople() *Users {
	return &Users{Tokens: []TokenUser{{Person{"vera", Viewer}, viewerToken}, {Person{"olga", Operator}, operatorToken}}}
}

// ask sends a request with headers, given as name and value in turn.
func ask(t *testing.T, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func textOf(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const drainOne = `{"name":"drain-worker","target":"w-1","reason":"a disk fails","by":"somebody else"}`

func TestTokens(t *testing.T) {
	t.Parallel()
	var got []Command
	c, s := serve(t, Options{Users: twoPeople(), Act: func(_ context.Context, cmd Command) error { got = append(got, cmd); return nil }})

	t.Run("without one nothing is shown but the page's files", func(t *testing.T) {
		for _, path := range []string{"state", "stream", "events", "chambers", "chambers/a/b", "moves", "load", "keys/x", "slots/1", "alarms", "runs/a/b/c", "preview"} {
			if r := ask(t, "GET", s.URL+"/api/"+path, ""); r.StatusCode != http.StatusUnauthorized {
				t.Errorf("/api/%s: status %d", path, r.StatusCode)
			}
		}
		if r := ask(t, "GET", s.URL+"/", ""); r.StatusCode != http.StatusOK {
			t.Errorf("the page: status %d", r.StatusCode)
		}
	})
	t.Run("each role gets what it may", func(t *testing.T) {
		for token, want := range map[string]struct {
			state  string
			status int
		}{
			viewerToken:             {`"actions":false`, http.StatusForbidden},
			operatorToken:           {`"actions":true`, http.StatusOK},
			"another-token-0123456": {`"error"`, http.StatusUnauthorized},
			"":                      {`"error"`, http.StatusUnauthorized},
		} {
			if text := textOf(t, ask(t, "GET", s.URL+"/api/state", "", "Authorization", "Bearer "+token)); !strings.Contains(text, want.state) {
				t.Errorf("%s: state %s", token, text)
			}
			if r := ask(t, "POST", s.URL+"/api/commands", drainOne, "Authorization", "Bearer "+token); r.StatusCode != want.status {
				t.Errorf("%s: a command: status %d, want %d", token, r.StatusCode, want.status)
			}
		}
	})
	t.Run("a command has the name of the token", func(t *testing.T) {
		if len(got) != 1 || got[0].By != "olga" {
			t.Errorf("commands %+v", got)
		}
		if m := c.moments.last(1); len(m) != 1 || !strings.Contains(m[0].Text, "(olga)") {
			t.Errorf("moments %+v", m)
		}
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	acted := 0
	o := Options{Users: twoPeople(), Act: func(context.Context, Command) error { acted++; return nil }}
	_, s := serve(t, o)
	open := func(token string) *http.Response {
		return ask(t, "POST", s.URL+"/api/session", "", "Authorization", "Bearer "+token)
	}
	if r := open("another-token-0123456"); r.StatusCode != http.StatusUnauthorized || len(r.Cookies()) > 0 {
		t.Fatalf("a wrong token: status %d, cookies %v", r.StatusCode, r.Cookies())
	}
	cookies := open(operatorToken).Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, operatorToken) {
		t.Fatalf("cookies %+v", cookies)
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	state := func(url, cookie string) string {
		return textOf(t, ask(t, "GET", url+"/api/state", "", "Cookie", cookie))
	}

	t.Run("a session reads and acts", func(t *testing.T) {
		if text := state(s.URL, cookie); !strings.Contains(text, `"name":"olga","role":"operator"`) {
			t.Errorf("state %s", text)
		}
		if r := ask(t, "POST", s.URL+"/api/commands", drainOne, "Cookie", cookie, "Sec-Fetch-Site", "same-origin"); r.StatusCode != http.StatusOK {
			t.Errorf("status %d: %s", r.StatusCode, textOf(t, r))
		}
	})
	t.Run("another site's page can't use it", func(t *testing.T) {
		before := acted
		for _, h := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
			if r := ask(t, "POST", s.URL+"/api/commands", drainOne, append(h, "Cookie", cookie)...); r.StatusCode != http.StatusForbidden {
				t.Errorf("%v: status %d", h, r.StatusCode)
			}
		}
		if acted != before {
			t.Error("it acted")
		}
	})
	t.Run("it survives a restart", func(t *testing.T) {
		_, again := serve(t, o)
		if text := state(again.URL, cookie); !strings.Contains(text, `"name":"olga"`) {
			t.Errorf("state %s", text)
		}
	})
	t.Run("it ends with its token", func(t *testing.T) {
		_, other := serve(t, Options{Users: &Users{Tokens: twoPeople().Tokens[:1]}})
		if text := state(other.URL, cookie); !strings.Contains(text, `"error"`) {
			t.Errorf("state %s", text)
		}
	})
	t.Run("it ends with its time, which can't be changed", func(t *testing.T) {
		u, now := *o.Users, time.Now()
		if _, ok := u.ofSession(newSession(operatorToken, now), now.Add(sessionLasts)); ok {
			t.Error("it lasts longer than it should")
		}
		_, code, _ := strings.Cut(newSession(operatorToken, now), ".")
		for _, forged := range []string{"9999999999." + code, "9999999999.", ".", "", "x." + code, "9999999999." + sessionCode("", "9999999999")} {
			if _, ok := u.ofSession(forged, now); ok {
				t.Errorf("%q is taken for a session", forged)
			}
		}
	})
	t.Run("signing out removes it from the browser", func(t *testing.T) {
		if c := ask(t, "DELETE", s.URL+"/api/session", "").Cookies(); len(c) != 1 || c[0].Value != "" || c[0].Expires.After(time.Now()) {
			t.Errorf("cookies %+v", c)
		}
	})
}

func TestProxy(t *testing.T) {
	t.Parallel()
	proxied := func(from string) *Users {
		return &Users{Proxy: Proxy{From: []netip.Prefix{netip.MustParsePrefix(from)}, UserHeader: "X-Forwarded-User", RoleHeader: "X-Forwarded-Groups", Operators: "fab-operators"}}
	}
	act := func(context.Context, Command) error { return nil }
	_, trusted := serve(t, Options{Users: proxied("127.0.0.0/8"), Act: act})
	_, distant := serve(t, Options{Users: proxied("10.0.0.0/8"), Act: act})
	for _, c := range []struct {
		name    string
		url     string
		headers []string
		want    string
		command int
	}{
		{"a viewer", trusted.URL, []string{"X-Forwarded-User", "vera"}, `"user":{"name":"vera","role":"viewer"}`, http.StatusForbidden},
		{"of other groups", trusted.URL, []string{"X-Forwarded-User", "vera", "X-Forwarded-Groups", "fab-operators-2, x"}, `"role":"viewer"`, http.StatusForbidden},
		{"an operator", trusted.URL, []string{"X-Forwarded-User", "olga", "X-Forwarded-Groups", "fab, fab-operators"}, `"user":{"name":"olga","role":"operator"}`, http.StatusOK},
		{"nobody", trusted.URL, []string{"X-Forwarded-Groups", "fab-operators"}, `names nobody`, http.StatusUnauthorized},
		{"a header that was added to", trusted.URL, []string{"X-Forwarded-User", "olga", "X-Forwarded-User", "vera"}, `names nobody`, http.StatusUnauthorized},
		{"groups that were added to", trusted.URL, []string{"X-Forwarded-User", "vera", "X-Forwarded-Groups", "fab-operators", "X-Forwarded-Groups", "fab"}, `"role":"viewer"`, http.StatusForbidden},
		{"another address", distant.URL, []string{"X-Forwarded-User", "olga", "X-Forwarded-Groups", "fab-operators"}, `names nobody`, http.StatusUnauthorized},
	} {
		if text := textOf(t, ask(t, "GET", c.url+"/api/state", "", c.headers...)); !strings.Contains(text, c.want) {
			t.Errorf("%s: state %s, want %s", c.name, text, c.want)
		}
		if r := ask(t, "POST", c.url+"/api/commands", drainOne, c.headers...); r.StatusCode != c.command {
			t.Errorf("%s: a command: status %d, want %d", c.name, r.StatusCode, c.command)
		}
	}
	if r := ask(t, "POST", trusted.URL+"/api/commands", drainOne, "X-Forwarded-User", "olga", "X-Forwarded-Groups", "fab-operators", "Sec-Fetch-Site", "cross-site"); r.StatusCode != http.StatusForbidden {
		t.Errorf("a command of another site's page: status %d", r.StatusCode)
	}
}

func TestParseTokens(t *testing.T) {
	t.Parallel()
	all, err := ParseTokens("# people\n\nviewer vera " + viewerToken + "\n operator\tolga  " + operatorToken + "\r\n")
	if err != nil || len(all) != 2 || all[1] != twoPeople().Tokens[1] {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = ParseTokens("viewer vera\nking olga " + operatorToken + "\noperator bob short\noperator bob " + operatorToken + "\n")
	for _, want := range []string{"line 1: has 2 words", `line 2: role is "king"`, `line 3: the token of "bob" has 5`, `line 4: name "bob" is there twice`, `line 4: the token of "bob" is another person's`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v and lacks %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), operatorToken) {
		t.Errorf("the error shows a token: %v", err)
	}
	if _, err := ParseTokens("# nothing\n"); err == nil {
		t.Error("an empty file is accepted: everybody would be locked out")
	}
}

func TestACommandIsRecorded(t *testing.T) {
	t.Parallel()
	var done []Done
	fails := false
	o := Options{Users: twoPeople(), Act: func(context.Context, Command) error { return nil }, Record: func(d Done) error {
		if fails {
			return errors.New("the disk is full")
		}
		done = append(done, d)
		return nil
	}}
	_, s := serve(t, o)
	send := func() *http.Response {
		return ask(t, "POST", s.URL+"/api/commands", drainOne, "Authorization", "Bearer "+operatorToken)
	}
	if r := send(); r.StatusCode != http.StatusOK || len(done) != 1 || done[0].By != "olga" || done[0].At.IsZero() {
		t.Fatalf("status %d, recorded %+v", r.StatusCode, done)
	}
	fails = true
	if r := send(); r.StatusCode != http.StatusInternalServerError || !strings.Contains(textOf(t, r), "is done, but could not be recorded: the disk is full") {
		t.Errorf("status %d", r.StatusCode)
	}

	// The next console replays the record.
	now := time.Now()
	o.Workers = func(context.Context) (WorkerPlane, error) {
		return WorkerPlane{At: now, Workers: []Worker{{ID: "w-1", State: "STABLE", Drained: now.Add(time.Hour)}}}, nil
	}
	c, again := serve(t, o)
	for _, d := range done {
		c.Replay(d)
	}
	text := textOf(t, ask(t, "GET", again.URL+"/api/state", "", "Authorization", "Bearer "+viewerToken))
	for _, want := range []string{`drain-worker w-1: a disk fails (olga)`, `"drainedBy":{"at":`} {
		if !strings.Contains(text, want) {
			t.Errorf("the state lacks %s: %s", want, text)
		}
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 2, 10, 0, 0, time.UTC)
	c := NewContact("NATS")
	c.now = func() time.Time { return now }
	if err := c.Note(nil); err != nil || !c.Source().Away.IsZero() || !c.Source().Seen.Equal(now) {
		t.Errorf("%v, %+v", err, c.Source())
	}
	now = now.Add(time.Minute)
	gone := errors.New("no servers available")
	if err := c.Note(gone); !errors.Is(err, gone) || !strings.Contains(err.Error(), "NATS is away since 02:11:00 UTC") {
		t.Errorf("%v", err)
	}
	now = now.Add(time.Minute)
	_ = c.Note(errors.New("still none"))
	if s := c.Source(); s.Away.Minute() != 11 || s.Seen.Minute() != 10 || s.Error != "still none" {
		t.Errorf("%+v", s)
	}
	_, s := serve(t, Options{Sources: func() []Source { return []Source{c.Source()} }})
	if text := textOf(t, ask(t, "GET", s.URL+"/api/state", "")); !strings.Contains(text, `"text":"NATS is away since 02:11:00 UTC"`) || !strings.Contains(text, `"severity":"warning"`) {
		t.Errorf("the state is %s", text)
	}
	_ = c.Note(nil)
	if s := c.Source(); !s.Away.IsZero() || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

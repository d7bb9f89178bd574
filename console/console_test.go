package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func serve(t testing.TB, o Options) (*Console, *httptest.Server) {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); cancel(); <-done })
	return c, s
}

func getJSON(t *testing.T, url string, into any) int {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s answers %q: %v", url, b, err)
	}
	return r.StatusCode
}

// frames reads a stream's frames as "event data".
func frames(t *testing.T, url string) <-chan [2]string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	out := make(chan [2]string, 100)
	go func() {
		defer close(out)
		var event string
		in := bufio.NewScanner(r.Body)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			if v, ok := strings.CutPrefix(in.Text(), "event: "); ok {
				event = v
			} else if v, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				out <- [2]string{event, v}
			}
		}
	}()
	return out
}

func await(t *testing.T, in <-chan [2]string, event string) string {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case f, ok := <-in:
			if !ok {
				t.Fatalf("the stream ended before a frame %q came", event)
			}
			if f[0] == event {
				return f[1]
			}
		case <-limit:
			t.Fatalf("no frame %q came", event)
		}
	}
}

func TestThePageAndAllItNeedsAreInTheBinary(t *testing.T) {
	_, s := serve(t, Options{})
	for path, holds := range map[string]string{"/": "<title>Muster</title>", "/app.js": "EventSource", "/style.css": "--panel"} {
		r, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK || !strings.Contains(string(b), holds) {
			t.Errorf("%s: status %d, %d bytes without %q", path, r.StatusCode, len(b), holds)
		}
		if strings.Contains(string(b), "https://") {
			t.Errorf("%s asks another host for something", path)
		}
		if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", path, csp)
		}
	}
}

func TestAChangeOfAPlaneReachesAnOpenPage(t *testing.T) {
	var version atomic.Uint64
	c, s := serve(t, Options{Refresh: time.Hour, Workers: func(context.Context) (WorkerPlane, error) {
		return WorkerPlane{Version: version.Load()}, nil
	}})
	in := frames(t, s.URL+"/api/stream")
	await(t, in, "workers")
	version.Store(7)
	c.Changed()
	var v WorkerPlane
	if err := json.Unmarshal([]byte(await(t, in, "workers")), &v); err != nil || v.Version != 7 {
		t.Errorf("the page got version %d, %v", v.Version, err)
	}
}

func TestAPlaneThatCanNotBeReadIsShownWithItsError(t *testing.T) {
	_, s := serve(t, Options{Nodes: func(context.Context) (NodePlane, error) { return NodePlane{}, errors.New("EC2 is away") }})
	var got struct{ Nodes NodePlane }
	getJSON(t, s.URL+"/api/state", &got)
	if got.Nodes.Error != "EC2 is away" {
		t.Errorf("got %+v", got)
	}
}

func TestEventsReachThePageInOrderAndOnce(t *testing.T) {
	c, s := serve(t, Options{})
	c.Say(Moment{Plane: "nodes", Kind: "a", Text: "before"})
	in := frames(t, s.URL+"/api/stream?from=0")
	var got []Moment
	for n := 1; len(got) < 51; n++ {
		var batch []Moment
		if err := json.Unmarshal([]byte(await(t, in, "events")), &batch); err != nil {
			t.Fatal(err)
		}
		got = append(got, batch...)
		if n == 1 {
			for i := range 50 {
				c.Say(Moment{Plane: "workers", Kind: "b", Text: fmt.Sprint(i)})
			}
		}
	}
	for i, m := range got {
		if m.Seq != uint64(i) {
			t.Fatalf("moment %d has sequence number %d", i, m.Seq)
		}
	}
}

func TestAPageThatComesBackTooLateIsToldOfTheGap(t *testing.T) {
	c, s := serve(t, Options{})
	for range maxBacklog + 10 {
		c.Say(Moment{Plane: "nodes", Text: "x"})
	}
	await(t, frames(t, s.URL+"/api/stream?from=1"), "gap")
}

func TestTheTimelineIsPagedAndFiltered(t *testing.T) {
	c, s := serve(t, Options{Keep: 100})
	for i := range 250 {
		plane := "nodes"
		if i%2 == 1 {
			plane = "workers"
		}
		c.Say(Moment{Plane: plane, Kind: "k", Text: fmt.Sprintf("event %d", i)})
	}
	var got []Moment
	getJSON(t, s.URL+"/api/events?limit=10", &got)
	if len(got) != 10 || got[0].Seq != 249 || got[9].Seq != 240 {
		t.Errorf("newest page: %d moments from %d", len(got), got[0].Seq)
	}
	getJSON(t, s.URL+"/api/events?limit=1000&before=240&plane=nodes", &got)
	if len(got) != 45 || got[0].Seq != 238 || got[44].Seq != 150 { // 150 to 239 are kept, every other one
		t.Errorf("older page of one plane: %d moments, %d to %d", len(got), got[0].Seq, got[len(got)-1].Seq)
	}
	getJSON(t, s.URL+"/api/events?limit=1000&plane=nodes,workers", &got)
	if len(got) != 100 {
		t.Errorf("%d moments of two planes, 100 are kept", len(got))
	}
	getJSON(t, s.URL+"/api/events?contains=EVENT+24", &got)
	if len(got) != 10 {
		t.Errorf("%d moments contain the text, want 10", len(got))
	}
	var fault map[string]string
	if status := getJSON(t, s.URL+"/api/events?limit=0", &fault); status != http.StatusBadRequest || fault["error"] == "" {
		t.Errorf("limit 0: status %d, %v", status, fault)
	}
}

func TestALongSearchFindsTheOldestThatIsKept(t *testing.T) {
	c, s := serve(t, Options{Keep: 20_000})
	for i := range 30_000 {
		c.Say(Moment{Plane: "workers", Kind: "k", Text: fmt.Sprintf("event %d.", i)})
	}
	var got []Moment
	getJSON(t, s.URL+"/api/events?contains=event+10000.&plane=workers", &got)
	if len(got) != 1 || got[0].Seq != 10_000 {
		t.Errorf("found %+v", got)
	}
	getJSON(t, s.URL+"/api/events?contains=event+9999.", &got)
	if len(got) != 0 {
		t.Errorf("found what is no longer kept: %+v", got)
	}
}

func TestOnlyAddressesAndNamedHostsAreServed(t *testing.T) {
	_, s := serve(t, Options{Hosts: []string{"console.example"}})
	for host, want := range map[string]int{"127.0.0.1:8080": 200, "[::1]:8080": 200, "localhost": 200, "console.example": 200, "rebound.example:8080": 403} {
		req, _ := http.NewRequest(http.MethodGet, s.URL+"/api/state", nil)
		req.Host = host
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("host %s: status %d, want %d", host, r.StatusCode, want)
		}
	}
}

func TestCommandsNeedTheTokenAndAReasonAndAreWrittenDown(t *testing.T) {
	var did []Command
	o := Options{Token: "secret", Act: func(_ context.Context, c Command) error {
		switch {
		case c.Name != DrainWorker:
			return fmt.Errorf("%w %q", ErrUnknownCommand, c.Name)
		case c.Target == "defender-99":
			return fmt.Errorf("%w: %q is no worker", ErrUnknownTarget, c.Target)
		case c.Target == "defender-5":
			return fmt.Errorf("%w: it is drained", ErrDoneAlready)
		case c.Target == "defender-6":
			return errors.New("it does not answer")
		}
		did = append(did, c)
		return nil
	}}
	c, s := serve(t, o)
	for _, tt := range []struct {
		name, token, body string
		want              int
		says              []string
	}{
		{"no token", "", `{"name":"drain-worker","target":"defender-3","reason":"disk"}`, 401, []string{"missing or wrong"}},
		{"wrong token", "Secret", `{"name":"drain-worker","target":"defender-3","reason":"disk"}`, 401, []string{"missing or wrong"}},
		{"no reason", "secret", `{"name":"drain-worker","target":"defender-3","reason":" "}`, 400, []string{"say why"}},
		{"everything wrong", "secret", `{"name":"drain-worker","by":"` + strings.Repeat("x", 101) + `","target":"a\nb"}`, 400, []string{"say why", "by has 101 characters", "target has control characters"}},
		{"not JSON", "secret", `drain`, 400, []string{"reading the command"}},
		{"unknown field", "secret", `{"nam":"drain-worker","reason":"disk"}`, 400, []string{"nam"}},
		{"unknown command", "secret", `{"name":"explode","reason":"disk"}`, 400, []string{"explode"}},
		{"unknown target", "secret", `{"name":"drain-worker","target":"defender-99","reason":"disk"}`, 404, []string{"is no worker"}},
		{"done already", "secret", `{"name":"drain-worker","target":"defender-5","reason":"disk"}`, 409, []string{"it is drained"}},
		{"it fails", "secret", `{"name":"drain-worker","target":"defender-6","reason":"disk"}`, 502, []string{"it does not answer"}},
		{"right", "secret", `{"name":"drain-worker","target":"defender-3","reason":"disk","by":"alice"}`, 200, nil},
	} {
		req, _ := http.NewRequest(http.MethodPost, s.URL+"/api/commands", strings.NewReader(tt.body))
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.want)
		}
		for _, says := range tt.says {
			if !strings.Contains(string(b), says) {
				t.Errorf("%s: %s lacks %q", tt.name, b, says)
			}
		}
	}
	if len(did) != 1 || did[0].Target != "defender-3" {
		t.Errorf("carried out: %v", did)
	}
	var events []Moment
	getJSON(t, s.URL+"/api/events", &events)
	if len(events) != 5 || events[0].Kind != "command" || events[0].Text != "drain-worker defender-3: disk (alice)" || events[1].Kind != "command.failed" || events[4].Kind != "command.failed" {
		t.Errorf("timeline: %+v", events)
	}
	_ = c
}

func TestAReadOnlyConsoleRefusesCommands(t *testing.T) {
	_, s := serve(t, Options{})
	r, err := http.Post(s.URL+"/api/commands", "application/json", strings.NewReader(`{"name":"drain-worker","reason":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("status %d, want 403", r.StatusCode)
	}
	if _, err := New(Options{Token: "x"}); !errors.Is(err, errNoAct) {
		t.Errorf("a token without something that acts: %v", err)
	}
}

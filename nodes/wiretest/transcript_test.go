package wiretest

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// transcript is the requests that a script led to, by tick. Within a tick they are sorted: what a survey asks, it asks at once.
type transcript struct {
	mu    sync.Mutex
	ticks [][]string
}

// tick begins the next tick.
func (c *transcript) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ticks = append(c.ticks, nil)
}

// note adds a request, and leaves its body to be read again. What comes before the first tick is left out: those requests find out
// what the servers can do.
func (c *transcript) note(protocol int, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	line := fmt.Sprint([]string{"ec2", "kubernetes", "prometheus", "dynamodb"}[protocol], " ", r.Method, " ", asked(r.URL.RequestURI()))
	if len(body) > 0 {
		line += " " + asked("?" + string(body))[1:]
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.ticks); n > 0 {
		c.ticks[n-1] = append(c.ticks[n-1], line)
	}
}

// asked writes a URL or a form without what differs between runs: the moments that a query is about, since calls that are made at once
// take their time in any order. Long values are digests.
func asked(text string) string {
	path, query, found := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if !found || err != nil || strings.HasPrefix(query, "{") {
		return text
	}
	for name, all := range values {
		switch name {
		case "time", "start", "end":
			values.Del(name)
		default:
			for i, v := range all {
				if len(v) > 200 {
					all[i] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(v)))
				}
			}
		}
	}
	text, _ = url.QueryUnescape(values.Encode())
	return path + "?" + text
}

// String writes the ticks in order.
func (c *transcript) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for i, lines := range c.ticks {
		fmt.Fprintf(&b, "tick %d\n", i+1)
		slices.Sort(lines)
		for _, line := range lines {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

var update = flag.Bool("update", false, "write the golden files again")

// TestCalls freezes every request that a scale-up and a scale-down make of EC2, Kubernetes and Prometheus, tick by tick. A change that
// preserves behaviour leaves them; for another one, write them again with -update and say why in the commit.
func TestCalls(t *testing.T) {
	scripts := map[string]func(*testing.T) *rig{
		"scale-up": func(t *testing.T) *rig {
			g := wanting(t)
			g.ends()
			return g
		},
		"scale-down": func(t *testing.T) *rig { return scaleDown(t) },
	}
	for name, play := range scripts {
		t.Run(name, func(t *testing.T) {
			got := play(t).heard.String()
			golden := "testdata/calls/" + name + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil { //nolint:gosec // a file of the repository
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the requests are not those of %s: %s", golden, firstDifference(got, string(want)))
			}
		})
	}
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is\n%s\nwant\n%s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("there are %d lines, want %d", len(g), len(w))
}

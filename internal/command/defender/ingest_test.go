package defender

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestIngestNamesAllWrongFlags: without connecting to anything.
func TestIngestNamesAllWrongFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--http", "0.0.0.0:8090", "--max-mib", "0", "--at-once", "0", "--time-unit", "h", "--sensor-column", "s"}, []string{
			"--http 0.0.0.0:8090 can be reached from other machines: give --token-file", "--max-mib is 0", "--at-once is 0",
			`"time-unit": "h" is no unit`, `"sensor-column": and value-column belong together`}},
		{[]string{"--http", "8090", "--token-file", "/nowhere"}, []string{"write host:port", "--token-file: reading the tokens"}},
	} {
		var out, errs bytes.Buffer
		if code := command.Run(Binary(), append([]string{"ingest"}, test.args...), &out, &errs); code != command.ExitUsage {
			t.Errorf("%q: exit code %d", test.args, code)
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%q: the error is\n%s\nwant in it: %s", test.args, &errs, want)
			}
		}
	}
}

// lines are what a command has printed.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestIngestAndExport: what is sent to the one is in the store that the other reads.
func TestIngestAndExport(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	if err := defender.Provision(t.Context(), natstest.Connect(t, server.URL()), defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "fdc.db")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lines
	root := Binary()
	root.SetOut(&out)
	root.SetArgs([]string{"ingest", "--nats", server.URL(), "--store", store, "--http", "127.0.0.1:0", "--time-column", "ts", "--step-column", "-"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	address := regexp.MustCompile(`http://\S+`)
	for !address.MatchString(out.String()) {
		select {
		case err := <-ended:
			t.Fatalf("it ends with %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}

	body := strings.NewReader("ts,P\n2026-03-01T12:00:00Z,1\n2026-03-01T12:00:01Z,2\n")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address.FindString(out.String())+"?chamber=etch1:a&run=r1", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/csv")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("the run is answered by %s", resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}

	var wrote, errs bytes.Buffer
	dir := t.TempDir()
	if code := command.Run(Binary(), []string{"export", "--store", store, "--dir", dir}, &wrote, &errs); code != command.ExitOK {
		t.Fatalf("export ends with %d: %s", code, &errs)
	}
	// The run isn't judged: no table has it yet.
	if want := filepath.Join(dir, "verdicts.parquet") + ": 0 rows"; !strings.Contains(wrote.String(), want) {
		t.Errorf("export prints\n%s\nwant in it: %s", &wrote, want)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: store})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.TChart(t.Context(), defender.TChartKey{Chamber: defender.Chamber{Tool: "etch1", Name: "a"}, Context: "r1"}); err != nil {
		t.Errorf("the T-chart: %v", err)
	}
}

// TestExportNamesAllWrongFlags: before anything is opened.
func TestExportNamesAllWrongFlags(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := command.Run(Binary(), []string{"export", "--chamber", "etch1", "--tables", "charts", "--since", "noon", "--dir", "/nowhere", "--runs", "0"}, &out, &errs)
	if code != command.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{`--chamber: chamber "etch1" has no colon`, `--tables names "charts"`, `--since "noon" is no time`, "--dir /nowhere is no directory", "--runs is 0"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("the error is\n%s\nwant in it: %s", &errs, want)
		}
	}
}

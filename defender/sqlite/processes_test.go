package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/defender/uchart"
)

// TestMain lets the test binary be a worker process of its own tests.
func TestMain(m *testing.M) {
	if path := os.Getenv("MUSTER_TEST_STORE"); path != "" {
		if err := worker(path, os.Getenv("MUSTER_TEST_WORKER")); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// worker commits alarming results of its own chamber for as long as it may, from
// several goroutines, and says which are stored.
func worker(path, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	const goroutines = 4
	var g sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for n := range goroutines {
		g.Go(func() {
			for i := n; ; i += goroutines {
				r := storetest.NewResult(defender.Chamber{Tool: "tool", Name: name}, "etch", i, uchart.Alarm)
				id := r.UChart.Context.ID
				err := s.PutTChart(ctx, r.UChart.Context.TChart(), []byte(strings.Repeat(id, 100)), r.Expires)
				if err == nil {
					_, err = s.Commit(ctx, defender.Fence{MapVersion: uint64(i + 1), ClaimRevision: 1}, r)
				}
				if errors.Is(err, defender.ErrFenced) {
					continue // another goroutine was quicker
				}
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				fmt.Println(id)
				mu.Unlock()
			}
		})
	}
	g.Wait()
	return failed
}

// TestManyProcessesAndSuddenDeath has several processes write to one file and
// kills each in the middle. What they said to be stored has to be there, whole,
// and the file has to work.
func TestManyProcessesAndSuddenDeath(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.db")
	const processes, rounds = 6, 2
	said := map[string][]string{} // by chamber
	var mu sync.Mutex
	for round := range rounds {
		var g sync.WaitGroup
		for p := range processes {
			g.Go(func() {
				name := fmt.Sprintf("chamber%d-%d", round, p)
				lines := runUntilKilled(t, binary, path, name, 10+5*p)
				mu.Lock()
				defer mu.Unlock()
				said[name] = lines
			})
		}
		g.Wait()
	}
	s := open(t, path)
	defer s.Close()
	total := 0
	for name, lines := range said {
		c := defender.Chamber{Tool: "tool", Name: name}
		stored, err := s.UCharts(t.Context(), c, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		alarms, err := s.Alarms(t.Context(), defender.AlarmQuery{Chamber: c, Limit: 1 << 20})
		if err != nil || len(alarms) != len(stored) {
			t.Errorf("%s: %d alarms of %d contexts, %v", name, len(alarms), len(stored), err)
		}
		have := map[string]bool{}
		for _, u := range stored {
			id := u.Context.ID
			have[id] = true
			if blob, err := s.TChart(t.Context(), u.Context.TChart()); err != nil || string(blob) != strings.Repeat(id, 100) {
				t.Errorf("%s: T-chart of %s has %d bytes, %v", name, id, len(blob), err)
			}
		}
		for _, id := range lines {
			if !have[id] {
				t.Errorf("%s: %s was said to be stored and is not", name, id)
			}
		}
		total += len(lines)
	}
	t.Logf("%d processes, all killed, stored %d contexts", processes*rounds, total)
}

// runUntilKilled kills a worker after n lines and returns all it wrote.
func runUntilKilled(t *testing.T, binary, path, name string, after int) []string {
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "MUSTER_TEST_STORE="+path, "MUSTER_TEST_WORKER="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	var lines []string
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		line := scanner.Text()
		if strings.HasPrefix(line, "error") {
			t.Errorf("%s: %s", name, line)
			break
		}
		lines = append(lines, line)
		if len(lines) == after {
			cmd.Process.Kill()
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(lines) < after {
		t.Errorf("%s stored %d contexts, want %d", name, len(lines), after)
	}
	return lines
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
)

func TestPartitionsReshardDoublesTheSlots(t *testing.T) {
	t.Parallel()
	url := startWorkers(t, 2)
	type result struct {
		Slots, Former, Wanted int
		Version               uint64
	}
	reshard := func(args ...string) (int, result, string) {
		t.Helper()
		code, out, errs := muster(append([]string{"partitions", "reshard", "--nats", url, "--group", "jobs", "--output", "json"}, args...)...)
		var v result
		if code == command.ExitOK {
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Fatalf("%v: %v in %s", args, err, out)
			}
		}
		return code, v, errs
	}
	if code, v, errs := reshard(); code != command.ExitOK || v.Slots != 32 || v.Wanted != 0 || v.Version != 1 {
		t.Fatalf("exit code %d, %+v: %s", code, v, errs)
	}
	if code, v, errs := reshard("--slots", "64"); code != command.ExitOK || v.Slots != 64 || v.Former != 0 || v.Version != 2 {
		t.Errorf("exit code %d, %+v: %s", code, v, errs)
	}
	if code, v, errs := reshard("--slots", "64"); code != command.ExitOK || v.Version != 2 {
		t.Errorf("asked for again: exit code %d, %+v: %s", code, v, errs)
	}
	for _, args := range []string{"--slots 48", "--slots 0 --wait -1s"} {
		code, _, errs := reshard(strings.Fields(args)...)
		if code != command.ExitUsage || !strings.Contains(errs, "give") {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
	if code, out, _ := muster("partitions", "reshard", "--nats", url, "--group", "jobs"); code != command.ExitOK || !strings.Contains(out, "64 slots") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

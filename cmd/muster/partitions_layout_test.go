package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPartitionsLayoutDoublesTheSlots(t *testing.T) {
	t.Parallel()
	url := startWorkers(t, 2)
	layout := func(args ...string) (int, layoutView, string) {
		t.Helper()
		code, out, errs := muster(append([]string{"partitions", "layout", "--nats", url, "--group", "jobs", "--output", "json"}, args...)...)
		var v layoutView
		if code == exitOK {
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Fatalf("%v: %v in %s", args, err, out)
			}
		}
		return code, v, errs
	}
	if code, v, errs := layout(); code != exitOK || v.Slots != 32 || v.Wanted != 0 || v.Version != 1 {
		t.Fatalf("exit code %d, %+v: %s", code, v, errs)
	}
	if code, v, errs := layout("--slots", "64"); code != exitOK || v.Slots != 64 || v.Former != 0 || v.Version != 2 {
		t.Errorf("exit code %d, %+v: %s", code, v, errs)
	}
	if code, v, errs := layout("--slots", "64"); code != exitOK || v.Version != 2 {
		t.Errorf("asked for again: exit code %d, %+v: %s", code, v, errs)
	}
	for _, args := range []string{"--slots 48", "--slots 0 --wait -1s"} {
		code, _, errs := layout(strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, "give") {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
	if code, out, _ := muster("partitions", "layout", "--nats", url, "--group", "jobs"); code != exitOK || !strings.Contains(out, "64 slots") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

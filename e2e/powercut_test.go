package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/local"
)

func TestSlotStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := slotStarts{pattern: filepath.Join(dir, "*")}
	add := func(file, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	look := func(since int64, want map[int]int64) {
		t.Helper()
		got, err := s.firstSince(time.Unix(0, since))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%d slots have begun since %d, want %d: %v", len(got), since, len(want), got)
		}
		for slot, at := range want {
			if got[slot].UnixNano() != at {
				t.Errorf("slot %d began at %d, want %d", slot, got[slot].UnixNano(), at)
			}
		}
	}
	add("a", "s 100 w-0 1 t:a 3 false false 90 one\ne 110 w-0 1 t:a 3 true true 90 one\n")
	add("b", "s 105 w-1 2 t:b 4 false false 90 one\ns 120 w-1 3 t:c 5 fal")
	look(100, map[int]int64{3: 100, 4: 105})
	add("b", "se false 90 one\n")
	add("a", "s 130 w-0 4 t:a 3 false false 125 two\n")
	look(105, map[int]int64{3: 130, 4: 105, 5: 120})
}

func TestPowerCutOptions(t *testing.T) {
	t.Parallel()
	nothing := func(string) bool { return false }
	t.Run("syncs always unless asked", func(t *testing.T) {
		t.Parallel()
		o := Options{Options: local.Options{BrokerOptions: local.BrokerOptions{Servers: 3}}}
		smallPowerCut(&o, nothing)
		if o.Sync != broker.SyncAlways || o.Replicas != 3 {
			t.Errorf("sync %s, %d replicas", o.Sync.String(), o.Replicas)
		}
		o = Options{Options: local.Options{BrokerOptions: local.BrokerOptions{Servers: 1}}}
		smallPowerCut(&o, func(flag string) bool { return flag == "sync" })
		if o.Sync != broker.SyncDefault || o.Replicas != 1 {
			t.Errorf("chosen: sync %s, %d replicas", o.Sync.String(), o.Replicas)
		}
	})
	t.Run("chaos has disks where it cuts the power", func(t *testing.T) {
		t.Parallel()
		for _, cuts := range []bool{false, true} {
			o := Options{PowerCuts: cuts}
			setChaos(&o)
			if o.onDisks != cuts {
				t.Errorf("power cuts %t: disks %t", cuts, o.onDisks)
			}
		}
	})
	t.Run("chaos without power cuts keeps its schedule", func(t *testing.T) {
		t.Parallel()
		for _, f := range chaosSchedule(1, time.Minute, costsFor(Options{})) {
			if f.Kind == faultPower {
				t.Errorf("%s", f)
			}
		}
		if n := len(costsFor(Options{PowerCuts: true})); n != len(costs)+1 {
			t.Errorf("%d kinds with power cuts", n)
		}
	})
}

package partition

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	lay, err := Config{Name: "defender", Stream: "dc", Subject: "dc.*.*.completion"}.resolve().validate()
	if err != nil {
		t.Fatal(err)
	}
	if lay.base != 512 || lay.finest() != 4096 {
		t.Errorf("layout %+v", lay)
	}
}

func TestReplicasRenewTheLeaseWithinTheGrace(t *testing.T) {
	t.Parallel()
	c := Config{Storage: Storage{Replicas: 3}}.resolve()
	if c.Lease.Heartbeat*3 > c.Lease.SuspicionGrace {
		t.Errorf("heartbeat every %v, grace %v", c.Lease.Heartbeat, c.Lease.SuspicionGrace)
	}
}

// TestConfigNamesEveryFault: a person who has made seven mistakes is told of
// seven.
func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	c := Config{Name: "Defender!", Stream: "a.b", Subject: "dc.completion", Slots: -1,
		Storage:  Storage{Replicas: 2, MaxAge: -1},
		Identity: Identity{PoolSize: -1, Capacity: math.NaN()},
		Lease: Lease{Heartbeat: -1, TTL: time.Millisecond, Margin: time.Hour, IDTTL: time.Microsecond,
			SuspicionGrace: -1, SuspicionMargin: -1, ProbeInterval: -1},
		Rebalance: Rebalance{ColdWindow: -1, PlannedWindow: -1, LeaveWindow: -1, PrepareTimeout: -1, HandoffTimeout: -1, LeaveTimeout: -1},
		Delivery:  Delivery{MaxHandlers: -1, HandlerTimeout: -1, RetryDelay: -1, AckWait: time.Millisecond}}
	_, err := c.resolve().validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, field := range []string{"Name", "Stream", "Subject", "Slots", "Storage.Replicas", "Storage.MaxAge", "Identity.PoolSize", "Identity.Capacity",
		"Lease.Heartbeat", "Lease.SuspicionGrace", "Lease.SuspicionMargin", "Lease.ProbeInterval", "Lease.TTL", "Lease.Margin", "Lease.IDTTL",
		"Rebalance.ColdWindow", "Rebalance.PlannedWindow", "Rebalance.LeaveWindow", "Rebalance.PrepareTimeout", "Rebalance.HandoffTimeout",
		"Rebalance.LeaveTimeout", "Delivery.RetryDelay", "Delivery.HandlerTimeout", "Delivery.AckWait", "Delivery.MaxHandlers"} {
		if !strings.Contains(err.Error(), "\n"+field+" is ") && !strings.Contains(err.Error(), "\n"+field+": ") {
			t.Errorf("nothing about %s in: %v", field, err)
		}
	}
}

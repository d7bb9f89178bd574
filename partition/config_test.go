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
	c := Config{Replicas: 3}.resolve()
	if c.HeartbeatInterval*3 > c.SuspicionGrace {
		t.Errorf("heartbeat every %v, grace %v", c.HeartbeatInterval, c.SuspicionGrace)
	}
}

// TestConfigNamesEveryFault: a person who has made seven mistakes is told of
// seven.
func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	c := Config{Name: "Defender!", Stream: "a.b", Subject: "dc.completion", Slots: -1, Replicas: 2, PoolSize: -1, Weight: math.NaN(),
		MaxAge: -1, HeartbeatInterval: -1, SuspicionGrace: -1, SuspicionMargin: -1, ProbeInterval: -1, ColdWindow: -1, PlannedWindow: -1, LeaveWindow: -1,
		PrepareTimeout: -1, HandoverTimeout: -1, LeaveTimeout: -1, RetryDelay: -1, HandlerTimeout: -1,
		LeaseTTL: time.Millisecond, LeaseMargin: time.Hour, IDTTL: time.Microsecond, AckWait: time.Millisecond}
	_, err := c.resolve().validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, field := range []string{"Name", "Stream", "Subject", "Slots", "Replicas", "PoolSize", "Weight", "MaxAge", "HeartbeatInterval",
		"SuspicionGrace", "SuspicionMargin", "ProbeInterval", "ColdWindow", "PlannedWindow", "LeaveWindow", "PrepareTimeout", "HandoverTimeout",
		"LeaveTimeout", "RetryDelay", "HandlerTimeout", "LeaseTTL", "LeaseMargin", "IDTTL", "AckWait"} {
		if !strings.Contains(err.Error(), "\n"+field+" is ") && !strings.Contains(err.Error(), "\n"+field+": ") {
			t.Errorf("nothing about %s in: %v", field, err)
		}
	}
}

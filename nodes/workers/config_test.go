package workers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

func TestWrongSettingsAreToldTogether(t *testing.T) {
	env := map[string]string{"WORKERS_NATS_URL": "nats.fdc:4222", "WORKERS_GROUP": "a.b", "WORKERS_DEPLOYMENT": "defender"}
	_, err := ConfigFromEnv(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err == nil {
		t.Fatal("accepted")
	}
	for name := range env {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not complained about: %v", name, err)
		}
	}
	c, err := ConfigFromEnv(func(string) (string, bool) { return "", false })
	if err != nil || c.Group != "defender" || c.URL != "" {
		t.Errorf("by default %+v, %v", c, err)
	}
	if p, end, err := Open(c); p != nil || err != nil || end() != nil {
		t.Errorf("without servers: %v, %v", p, err)
	}
}

// TestWorkersLearnTheReplicasEvenWhenTheirServerComesLater follows a number that changes and can't always be read.
func TestWorkersLearnTheReplicasEvenWhenTheirServerComesLater(t *testing.T) {
	srv := natstest.Start(t)
	p, end, err := Open(Config{URL: srv.URL(), Group: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end() })
	var wanted atomic.Int64
	wanted.Store(3)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Follow(ctx, nil, nil, func(context.Context) (int, error) {
			if n := wanted.Load(); n >= 0 {
				return int(n), nil
			}
			return 0, errors.New("the API is away")
		})
	}()
	cfg := partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*.*", Slots: 30}
	nc := natstest.Connect(t, srv.URL())
	if err := partition.Open(nc, cfg.Name).Provision(t.Context(), cfg); err != nil { // until now there was nobody to be told
		t.Fatal(err)
	}
	js := natstest.JetStream(t, nc)
	expected := func() string {
		kv, err := js.KeyValue(t.Context(), "worker-assignments")
		if err != nil {
			return ""
		}
		e, err := kv.Get(t.Context(), "expected")
		if err != nil {
			return ""
		}
		return string(e.Value())
	}
	eventually(t, "3 expected", func() bool { return strings.Contains(expected(), `"n":3`) })
	wanted.Store(-1)
	time.Sleep(10 * time.Millisecond)
	wanted.Store(5)
	eventually(t, "5 expected", func() bool { return strings.Contains(expected(), `"n":5`) })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

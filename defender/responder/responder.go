// Package responder lets a worker in a pod respond to Kubernetes' EvictionRequests: it hands its slots off before the pod is evicted,
// and reports that. Kubernetes has them from 1.37 on, as an alpha feature (lifecycle.k8s.io/v1alpha1).
//
// The pod names the responder in spec.evictionResponders. When somebody requests its eviction, the controller of Kubernetes makes an
// Eviction and activates the responder, which writes heartbeats and, once the worker has no slot left, its completion into the
// Eviction's status. Then the pod is evicted. If the request is withdrawn the worker takes slots again.
//
// The API is spoken directly: two requests are no reason to link a client of all of Kubernetes.
package responder

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/partition"
)

// Name is the responder's, in spec.evictionResponders. It is a label of the Evictions that it is to respond to.
const Name = "muster.dev/worker"

const (
	heartbeat = 20 * time.Second       // the shortest that the API asks for
	drainFor  = 3 * heartbeat          // a worker whose responder has died works again by itself
	look      = 100 * time.Millisecond // at the worker, while it hands off
	pause     = 2 * time.Second        // after an error, and between watches
)

// Worker is what hands off.
type Worker interface {
	// Drain makes it give all its slots away and take none until a time; the zero time ends that.
	Drain(until time.Time)
	Status() partition.Status
}

// Config says for whom to respond.
type Config struct {
	API    API
	Pod    string // its name
	PodUID string
	Worker Worker
	Logger *slog.Logger // nil: slog's default
}

// Responder responds to the evictions of one pod.
type Responder struct {
	Config

	beat     time.Time // the last heartbeat
	draining string    // the Eviction for which the worker drains; empty: none
	done     bool      // and its completion is written
}

// New returns a responder. It does no I/O.
func New(c Config) *Responder {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Responder{Config: c}
}

// Run responds until ctx ends. What fails is tried again, and logged when it begins to fail: without a responder the pod hands off when
// it gets SIGTERM.
func (r *Responder) Run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.Logger.Error("Responding to evictions failed; tried again.", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// follow reads the pod's Eviction and then its changes until the watch ends.
func (r *Responder) follow(ctx context.Context) error {
	items, version, err := r.API.list(ctx)
	if err != nil {
		return err
	}
	var own *eviction // of this pod
	for i := range items {
		if r.isOwn(&items[i]) {
			own = &items[i]
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan change)
	ended := make(chan error, 1)
	go func() { ended <- r.API.watch(ctx, version, changes) }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := r.step(ctx, own, time.Now()); err != nil {
			return err
		}
		var ticked <-chan time.Time // while there is something to look at
		if own != nil {
			ticked = tick.C
		}
		select {
		case c := <-changes:
			if r.isOwn(&c.Object) {
				own = &c.Object
				if c.Type == "DELETED" {
					own = nil
				}
			}
		case <-ticked:
		case err := <-ended:
			return err
		}
	}
}

func (r *Responder) isOwn(e *eviction) bool {
	pod := e.Spec.Target.Pod
	return pod != nil && pod.Name == r.Pod && (r.PodUID == "" || pod.UID == r.PodUID)
}

// step does what there is to do about the pod's Eviction; nil: there is none.
func (r *Responder) step(ctx context.Context, e *eviction, now time.Time) error {
	if e == nil || !e.wants() {
		r.takeBack()
		return nil
	}
	if r.draining != e.Metadata.UID {
		r.Logger.Info("The pod is to be evicted; handing off.", "eviction", e.Metadata.Name)
		r.draining, r.done, r.beat = e.Metadata.UID, false, time.Time{}
	}

	// After the completion too: the pod may stay for as long as a disruption budget protects it, and must not
	// take slots that it would have to hand off once more.
	if beating := now.Sub(r.beat) >= heartbeat; beating {
		r.Worker.Drain(now.Add(drainFor))
		if !r.done && e.state() == active {
			if err := r.API.report(ctx, e, report{Name: Name, HeartbeatTime: stamp(now), Message: "handing off"}); err != nil {
				return err
			}
		}
		r.beat = now
		return nil // the worker has yet to take that in
	}
	if r.done || e.state() != active {
		return nil
	}
	if s := r.Worker.Status(); !s.Draining || len(s.Slots) > 0 {
		return nil
	}
	if err := r.API.report(ctx, e, report{Name: Name, HeartbeatTime: stamp(now), CompletionTime: stamp(now), Message: "handed off"}); err != nil {
		return err
	}
	r.done = true
	r.Logger.Info("Handed off before the eviction.", "eviction", e.Metadata.Name)
	return nil
}

// takeBack lets the worker take slots again, if it was drained.
func (r *Responder) takeBack() {
	if r.draining == "" {
		return
	}
	r.Logger.Info("The eviction is no longer wanted; taking slots again.")
	r.Worker.Drain(time.Time{})
	r.draining = ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// The states that Kubernetes gives a responder.
const (
	active    = "Active"
	completed = "Completed"
)

// eviction is an Eviction of lifecycle.k8s.io, as far as it is read.
type eviction struct {
	Metadata struct {
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Target struct {
			Pod *struct {
				Name string `json:"name"`
				UID  string `json:"uid"`
			} `json:"pod"`
		} `json:"target"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		TargetResponders []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"targetResponders"`
	} `json:"status"`
}

// state returns this responder's.
func (e *eviction) state() string {
	for _, t := range e.Status.TargetResponders {
		if t.Name == Name {
			return t.State
		}
	}
	return ""
}

// wants reports whether the worker is to hand off, or to stay without slots.
func (e *eviction) wants() bool {
	for _, c := range e.Status.Conditions {
		if c.Type == "Failed" && c.Status == "True" {
			return false
		}
	}
	return e.state() == active || e.state() == completed
}

// report is what a responder writes of itself.
type report struct {
	Name           string `json:"name"`
	HeartbeatTime  string `json:"heartbeatTime,omitempty"`
	CompletionTime string `json:"completionTime,omitempty"`
	Message        string `json:"message,omitempty"`
}

// patch is a strategic merge patch: the server merges lists by the names in them, so that what the controller writes at the same time
// stays.
func (p report) patch() ([]byte, error) {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"responders": []report{p}}})
	if err != nil {
		return nil, fmt.Errorf("writing a report: %w", err)
	}
	return body, nil
}

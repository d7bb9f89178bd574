package record

import (
	"errors"
	"fmt"

	"github.com/muster-dev/muster/partition/state"
)

// MapSchemaRead is the newest schema of the map that the worker of a lease reads. A
// worker of before MapSchema 2 says nothing about it.
func (v Heartbeat) MapSchemaRead() int { return max(v.MapSchema, OldestMapSchema) }

// Heartbeat is what a worker writes each time it renews its lease.
//
// ID, Claim and Instance say who it is: the claim tells processes under the same stable ID
// apart, and the instance those that were given the same claim by a bucket that went back. N
// counts the renewals. Weight, Zone, Pod and Node are as the worker was configured, for the
// leader's plans; Version and State are for people and for the leader, which waits until all
// have a map. Fields that a later version adds are ignored by earlier ones.
type Heartbeat struct {
	Schema   int         `json:"schema"`
	ID       string      `json:"id"`
	Claim    uint64      `json:"claim"`
	Instance string      `json:"instance"`
	N        uint64      `json:"n"`
	Leaving  bool        `json:"leaving,omitempty"`
	Draining bool        `json:"yielding,omitempty"`  // takes no slots and gives its own away
	DrainEnd int64       `json:"yield_end,omitempty"` // until when, in Unix milliseconds
	Weight   float64     `json:"weight"`
	Zone     string      `json:"zone,omitempty"`
	Pod      string      `json:"pod,omitempty"`
	Node     string      `json:"node,omitempty"`
	Version  uint64      `json:"version"` // of the map it has
	State    state.State `json:"state"`
	// MapSchema is the newest schema of the map that the worker reads; 0: it does not say.
	MapSchema int `json:"map_schema,omitempty"`
}

// Claim is the record under a stable ID, which its worker renews: who has the ID, counted by N.
type Claim struct {
	Schema   int    `json:"schema"`
	Pod      string `json:"pod"`
	PodUID   string `json:"pod_uid"`
	Version  string `json:"version,omitempty"`
	Instance string `json:"instance"`
	N        uint64 `json:"n"`
}

type Leader struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Claim  uint64 `json:"claim"`
	N      uint64 `json:"n"`
}

// DecodeHeartbeat reads the heartbeat at a key.
func DecodeHeartbeat(key string, data []byte) (Heartbeat, error) {
	var v Heartbeat
	if err := decode(data, MaxBytes, &v); err != nil {
		return Heartbeat{}, err
	}
	err := checkProcess("worker", Process{v.ID, v.Claim})
	if v.ID != key {
		err = errors.Join(err, fmt.Errorf("it is of %q and lies at %q", v.ID, key))
	}
	if v.MapSchema < 0 {
		err = errors.Join(err, fmt.Errorf("map_schema is %d, want 0 or more", v.MapSchema))
	}
	if v.Weight <= 0 || v.Weight > maxWeight {
		err = errors.Join(err, fmt.Errorf("weight is %v, want more than 0, up to a million", v.Weight))
	}
	if err != nil {
		return Heartbeat{}, err
	}
	return v, nil
}

// DecodeClaim reads what holds a stable ID.
func DecodeClaim(data []byte) (Claim, error) {
	var v Claim
	if err := decode(data, MaxBytes, &v); err != nil {
		return Claim{}, err
	}
	if v.Instance == "" {
		return Claim{}, errors.New("it names no instance")
	}
	return v, nil
}

// DecodeLeader reads the leader's lease.
func DecodeLeader(data []byte) (Leader, error) {
	var v Leader
	if err := decode(data, MaxBytes, &v); err != nil {
		return Leader{}, err
	}
	if err := checkProcess("leader", Process{v.ID, v.Claim}); err != nil {
		return Leader{}, err
	}
	return v, nil
}

const (
	// maxWeight bounds a worker's relative capacity.
	maxWeight = 1e6
)

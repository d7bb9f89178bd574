package partition

import (
	"encoding/json"
	"fmt"

	"github.com/muster-dev/muster/partition/state"
)

// This file holds what workers write into buckets and send to each other. refuse.go reads it.

// valueSchema is the schema of every record but the map.
const valueSchema = 1

// leaseValue is what a worker writes in its heartbeat.
type leaseValue struct {
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

// idValue is what holds a stable ID.
type idValue struct {
	Schema   int    `json:"schema"`
	Pod      string `json:"pod"`
	PodUID   string `json:"pod_uid"`
	Version  string `json:"version,omitempty"`
	Instance string `json:"instance"`
	N        uint64 `json:"n"`
}

type leaderValue struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Claim  uint64 `json:"claim"`
	N      uint64 `json:"n"`
}

// expectedValue is what expectedKey holds.
type expectedValue struct {
	Schema int `json:"schema"`
	N      int `json:"n"`
}

// wantedValue is what wantedKey holds.
type wantedValue struct {
	Schema int `json:"schema"`
	Slots  int `json:"slots"`
}

// peerMessage goes from worker to worker outside the buckets. Each is repeated
// until the map shows that it did its work, so one that is lost costs a
// resyncInterval; each names versions, so one that is late does nothing.
type peerMessage struct {
	Schema int        `json:"schema"`
	Kind   peerKind   `json:"kind"`
	From   Member     `json:"from"`
	To     Member     `json:"to"`
	Slots  []slotMark `json:"slots,omitempty"`
}

type slotMark struct {
	Slot    int    `json:"s"`
	Version uint64 `json:"v"`           // of the move, or of the takeover
	Forced  bool   `json:"f,omitempty"` // given up with a message unsettled
	Idle    int64  `json:"i,omitempty"` // released: microseconds since the old owner stopped
}

type peerKind string

const (
	peerPrepared    peerKind = "prepared"     // next -> owner: ready to take these
	peerReleased    peerKind = "released"     // owner -> next and leader: these are yours
	peerHolding     peerKind = "holding"      // next -> leader: have them
	peerGrant       peerKind = "grant"        // leader -> owner: taken from a failed worker
	peerWant        peerKind = "want"         // owner -> leader: waits for these
	peerAlone       peerKind = "alone"        // leader -> leaving worker: nobody can take over
	peerAskOld      peerKind = "release-old"  // leader -> owner: release these slots of the old generation
	peerOldReleased peerKind = "old-released" // owner -> leader: released
)

// drainRequest asks a worker to drain; drainReply tells how far it is.
type drainRequest struct {
	Schema int   `json:"schema"`
	Until  int64 `json:"until"` // Unix milliseconds; 0: work again
}

type drainReply struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Slots  int    `json:"slots"` // that it holds
}

// fenceReport is what an owner tells the leader of a fence rejection.
type fenceReport struct {
	Schema int    `json:"schema"`
	From   Member `json:"from"`
	To     Member `json:"to"`
	Layout int    `json:"layout"` // with Slots the slot's division
	Slots  int    `json:"slots"`
	Slot   int    `json:"slot"`
	Fence  Fence  `json:"fence"`  // the owner's
	Stored Fence  `json:"stored"` // the store's
}

// mustJSON returns a record as it is stored.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("partition: plain data, yet: %v", err))
	}
	return data
}

// peerSubject is where a worker is reached.
func peerSubject(group string, m Member) string {
	return fmt.Sprintf("muster.%s.worker.%s.%d", group, m.ID, m.Claim)
}

// peerSubjects covers the subjects of all workers of a group.
func peerSubjects(group string) string { return "muster." + group + ".worker.*.*" }

package main

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/muster-dev/muster/lab/metadata"
)

// notices are what the metadata service tells machines of their end. The zero value has none.
type notices struct {
	mu        sync.Mutex
	byMachine map[string]metadata.Notices
}

func (n *notices) of(id string) metadata.Notices {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byMachine[id]
}

// add adds a machine's notices to those that it has.
func (n *notices) add(id string, further metadata.Notices) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.byMachine[id]
	if !further.Interruption.IsZero() {
		all.Interruption = further.Interruption
	}
	if !further.Rebalance.IsZero() {
		all.Rebalance = further.Rebalance
	}
	if n.byMachine == nil {
		n.byMachine = map[string]metadata.Notices{}
	}
	n.byMachine[id] = all
}

// notify takes notices for a machine.
func (m *machines) notify(w http.ResponseWriter, r *http.Request) {
	var further metadata.Notices
	err := json.NewDecoder(r.Body).Decode(&further)
	found := m.fleet.Find(r.PathValue("id"))
	if err == nil && found != nil {
		m.notices.add(r.PathValue("id"), further)
	}
	answer(w, found, err)
}

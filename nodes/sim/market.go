package sim

import (
	"cmp"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Shortage refuses launches of matching offerings; empty fields match all.
type Shortage struct {
	Zone, Type string
	Market     nodes.Market
	Kind       nodes.LaunchFailure // "" means FailCapacity
	Until      time.Time           // zero: permanently
	FromLaunch int                 // not before this many instances have been launched
}

func (s Shortage) matches(o nodes.Offering, now time.Time) bool {
	offered := (s.Zone == "" || s.Zone == o.Zone) && (s.Type == "" || s.Type == o.Type) && (s.Market == "" || s.Market == o.Market)
	return offered && (s.Until.IsZero() || now.Before(s.Until))
}

// market launches instances: what capacity is short, and what each client token was used for.
type market struct {
	time    *timeline
	ledger  *ledger
	fleet   *fleet
	joins   map[string]Joins // by launch template
	visible time.Duration    // how long a new instance is not listed

	tokens    map[string]*tokenUse
	launches  int
	boots     []Boot // of the next instances; after them every one comes up well
	shortages []Shortage
}

// tokenUse is what a client token was used for first.
type tokenUse struct {
	request  nodes.LaunchRequest
	instance *instance // nil while no request got one
}

// launch starts an instance for a client. A token is bound to its first request in its zone, whether or not that got an instance.
func (m *market) launch(actor string, req nodes.LaunchRequest, j Joins, late bool) (*instance, error) {
	now, zone := m.time.now, req.Offering.Zone
	use := m.use(req)
	switch {
	case use.request != req:
		m.ledger.record(Entry{Actor: actor, Kind: TokenMismatch, Request: req, Zone: zone})
		return nil, m.refuse(actor, req, nodes.FailPermanent, "IdempotentParameterMismatch")
	case use.instance != nil && !use.instance.alive():
		return nil, m.refuse(actor, req, nodes.FailTokenSpent, "IdempotentInstanceTerminated")
	case use.instance != nil:
		m.ledger.record(Entry{Actor: actor, Kind: LaunchedAgain, Instance: use.instance.ID, Request: req, Zone: zone})
		return use.instance, nil
	}
	for _, s := range m.shortages {
		if s.matches(req.Offering, now) && m.launches >= s.FromLaunch {
			return nil, m.refuse(actor, req, cmp.Or(s.Kind, nodes.FailCapacity), "InsufficientInstanceCapacity")
		}
	}

	in := m.fleet.create(nodes.Instance{
		Type: req.Offering.Type, Zone: zone, Market: req.Offering.Market, LaunchedAt: now, ActionID: req.ActionID, Pool: req.Offering.Pool, TemplateHash: req.TemplateHash,
	})
	in.visibleAt = now.Add(m.visible)
	use.instance = in
	m.launches++
	m.fleet.boot(in, m.nextBoot().from(j))
	m.ledger.record(Entry{Actor: actor, Kind: Launched, Instance: in.ID, Request: req, Zone: zone, Facts: m.fleet.facts(in), Late: late})
	return in, nil
}

// use returns what a request's token was used for, from now on for this request if it is new or empty.
func (m *market) use(req nodes.LaunchRequest) *tokenUse {
	key := req.Offering.Zone + "/" + req.Token
	use := m.tokens[key]
	if use == nil || req.Token == "" {
		use = &tokenUse{request: req}
		m.tokens[key] = use
	}
	return use
}

func (m *market) refuse(actor string, req nodes.LaunchRequest, kind nodes.LaunchFailure, code string) error {
	m.ledger.record(Entry{Actor: actor, Kind: LaunchRefused, Request: req, Zone: req.Offering.Zone, Refusal: kind, Detail: code})
	return &nodes.LaunchError{Kind: kind, Code: code, Message: "refused"}
}

// from adds what the user data gives.
func (b Boot) from(j Joins) Boot {
	if b.Labels == nil && b.Taints == nil {
		b.Labels, b.Taints, b.keeps = j.Labels, j.Taints, j.Taints
	}
	return b
}

// nextBoot returns how the next launched instance comes up.
func (m *market) nextBoot() Boot {
	var b Boot
	if len(m.boots) > 0 {
		b, m.boots = m.boots[0], m.boots[1:]
	}
	return b
}

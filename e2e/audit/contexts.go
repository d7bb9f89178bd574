package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ContextAccount is what became of the contexts that were published, by the database of
// the results alone: it needs nothing of the broker, which may have lost its streams, or
// have given a sequence to two messages. What it counts beyond Published, Stored and
// Unstored is a fault; the first few are told in Faults.
type ContextAccount struct {
	Published int // contexts that the broker acknowledged
	Stored    int // of them, with a result
	Unstored  int // of them, without: lost, unless they are dead-lettered or wait

	StoredTwice int // with more than one result, or with a result that changed
	FromNowhere int // results of contexts that were not published
	OutOfOrder  int // results stored after that of a later context of the chamber
	FenceBack   int // results stored under a lower fence than one before of the chamber

	Faults []string // the first few, for a person

	Missing  []Published          // the contexts without a result
	StoredAt map[string]time.Time // by key and context with a slash between, when
}

// ResultsAuditor notes the changes of the results, and nothing of the broker's.
type ResultsAuditor struct{ a Auditor }

// BeginResults has the database of the results note each change from now on. Nothing may
// have been stored.
func BeginResults(ctx context.Context, file string) (*ResultsAuditor, error) {
	r := &ResultsAuditor{Auditor{c: Config{Results: file}}}
	if err := r.a.watchResults(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the audit of %s: %w", file, err), r.Close())
	}
	return r, nil
}

// Close ends the audit.
func (r *ResultsAuditor) Close() error { return r.a.Close() }

// Account compares what was published, in the order of each key, with the results.
func (r *ResultsAuditor) Account(ctx context.Context, published []Published) (ContextAccount, error) {
	effects, err := r.a.effects(ctx)
	if err != nil {
		return ContextAccount{}, fmt.Errorf("reading the results of %s: %w", r.a.c.Results, err)
	}
	return accountContexts(published, effects), nil
}

func accountContexts(published []Published, effects []effect) ContextAccount {
	a := ContextAccount{StoredAt: make(map[string]time.Time)}
	fault := func(n *int, format string, args ...any) {
		*n++
		if len(a.Faults) < maxFaults {
			a.Faults = append(a.Faults, fmt.Sprintf(format, args...))
		}
	}
	place := make(map[contextKey]int) // among all that were published
	for i, p := range published {
		if _, again := place[contextKey{p.Key, p.Context}]; !again {
			place[contextKey{p.Key, p.Context}] = i
		}
	}
	a.Published = len(place)
	stored := make(map[contextKey]bool)
	latest := make(map[string]effect)
	for _, x := range effects {
		c := contextKey{x.key, x.context}
		at, known := place[c]
		switch {
		case x.kind != "stored":
			fault(&a.StoredTwice, "%s/%s: its result was %s", x.key, x.context, x.kind)
			continue
		case stored[c]:
			fault(&a.StoredTwice, "%s/%s: its result was stored again", x.key, x.context)
		case !known:
			fault(&a.FromNowhere, "%s/%s: a result of what was not published", x.key, x.context)
		default:
			a.Stored++
		}
		stored[c], a.StoredAt[x.key+"/"+x.context] = true, x.at
		if b, ok := latest[x.key]; ok {
			if before, known := place[contextKey{b.key, b.context}]; known && at < before {
				fault(&a.OutOfOrder, "%s: %s was stored after %s, which came later", x.key, x.context, b.context)
			}
			if cmp.Or(cmp.Compare(x.version, b.version), cmp.Compare(x.claim, b.claim)) < 0 {
				fault(&a.FenceBack, "%s: %s was stored under fence %d.%d, after %d.%d", x.key, x.context, x.version, x.claim, b.version, b.claim)
			}
		}
		latest[x.key] = x
	}
	told := make(map[contextKey]bool)
	for _, p := range published {
		if c := (contextKey{p.Key, p.Context}); !stored[c] && !told[c] {
			told[c] = true
			a.Missing = append(a.Missing, p)
		}
	}
	a.Unstored = len(a.Missing)
	return a
}

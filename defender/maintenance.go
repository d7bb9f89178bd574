package defender

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// NewMaintenance returns the message that a chamber was maintained at a time. The
// ID is unique within the chamber, 1 to 80 of the characters of context IDs. An
// empty recipe stands for all that the chamber ran lately.
func NewMaintenance(chamber Chamber, id, recipe string, at time.Time) Completion {
	return Completion{
		Schema: CompletionSchema, Kind: KindMaintenance, Tool: chamber.Tool, Chamber: chamber.Name,
		Context: id, TChart: TChartKey{Chamber: chamber, Context: id}.String(), Start: at, End: at, Recipe: recipe,
	}
}

// maxMaintenanceID leaves room for what tells recipes apart.
const maxMaintenanceID = 80

// lately is how many contexts are looked at for recipes.
const lately = 1000

// maintainer starts the limits of chambers again after maintenance.
type maintainer struct {
	store     Store
	fencing   fencing
	alarms    *announcer
	log       *logger
	history   int           // earlier contexts that a verdict rests on
	retention time.Duration // of U-charts
}

// maintain stores a mark in the history of each recipe. Like contexts marks are
// stored once, under the fence, and at a fixed place in the order.
func (t *maintainer) maintain(ctx context.Context, m partition.Message, ref ContextRef) error {
	if len(ref.ID) > maxMaintenanceID {
		return partition.GiveUp(fmt.Errorf("the ID of the maintenance has %d bytes, at most %d are allowed", len(ref.ID), maxMaintenanceID))
	}
	fence := fenceOf(m)
	if err := t.store.RaiseFence(ctx, ref.Chamber, fence); err != nil {
		return t.fencing.checked(ref.Chamber, err)
	}
	recipes, err := t.recipes(ctx, ref)
	if err != nil {
		return err
	}
	for _, recipe := range recipes {
		if err := t.mark(ctx, fence, ref, recipe); err != nil {
			return err
		}
	}
	t.fencing.cache.drop(ref.Chamber) // marks may lie before contexts that are there
	t.log.line().Info(fmt.Sprintf("Maintenance of chamber %s: limits start again", ref.Chamber), "context", ref.ID, "recipes", len(recipes))
	return nil
}

// recipes returns what a maintenance is about: its recipe, or all that the chamber ran
// lately and the empty one, if it names none.
func (t *maintainer) recipes(ctx context.Context, ref ContextRef) ([]string, error) {
	if ref.Recipe != "" {
		return []string{ref.Recipe}, nil
	}
	newest, err := t.store.UCharts(ctx, ref.Chamber, lately)
	if err != nil {
		return nil, fmt.Errorf("reading what %s ran lately: %w", ref.Chamber, err)
	}
	recipes := []string{ref.Recipe}
	seen := map[string]bool{"": true}
	for _, u := range newest {
		if !seen[u.Context.Recipe] {
			seen[u.Context.Recipe] = true
			recipes = append(recipes, u.Context.Recipe)
		}
	}
	return recipes, nil
}

// mark stores the mark in the history of one recipe, and clears its alarm.
func (t *maintainer) mark(ctx context.Context, fence Fence, ref ContextRef, recipe string) error {
	mark := ref
	mark.Recipe = recipe
	sum := sha256.Sum256([]byte(recipe))
	mark.ID = "maintenance-" + ref.ID + "-" + hex.EncodeToString(sum[:6])
	r := NewResult(mark, &uchart.Chart{}, uchart.Verdict{State: uchart.Maintenance}, time.Now().Add(t.retention))
	history, err := t.store.History(ctx, HistoryQuery{Chamber: mark.Chamber, Recipe: recipe, Before: mark.Position(), Limit: t.history})
	if err != nil {
		return err
	}
	if _, err := t.store.Commit(ctx, fence, r); err != nil {
		return t.fencing.checked(ref.Chamber, fmt.Errorf("storing the maintenance of %s: %w", ref.Chamber, err))
	}
	return t.alarms.notify(ctx, history, r.UChart)
}

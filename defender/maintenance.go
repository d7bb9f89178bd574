package defender

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// KindMaintenance marks a [Completion] that announces maintenance of a chamber: its
// limits start again with the contexts after it, and its alarms are cleared.
const KindMaintenance = "maintenance"

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

// maintain stores a mark in the history of each recipe. Like contexts marks are
// stored once, under the fence, and at a fixed place in the order.
func (d *Defender) maintain(ctx context.Context, m partition.Message, ref ContextRef) error {
	if len(ref.ID) > maxMaintenanceID {
		return d.bury(ctx, m, fmt.Errorf("the ID of the maintenance has %d bytes, at most %d are allowed", len(ref.ID), maxMaintenanceID))
	}
	fence := Fence{MapVersion: m.Fence.Version, ClaimRevision: m.Fence.Claim}
	if err := d.c.Store.RaiseFence(ctx, ref.Chamber, fence); err != nil {
		return d.fenced(ref.Chamber, err)
	}
	recipes := []string{ref.Recipe}
	if ref.Recipe == "" {
		newest, err := d.c.Store.UCharts(ctx, ref.Chamber, lately)
		if err != nil {
			return fmt.Errorf("reading what %s ran lately: %w", ref.Chamber, err)
		}
		seen := map[string]bool{"": true}
		for _, u := range newest {
			if !seen[u.Context.Recipe] {
				seen[u.Context.Recipe] = true
				recipes = append(recipes, u.Context.Recipe)
			}
		}
	}
	for _, recipe := range recipes {
		mark := ref
		mark.Recipe = recipe
		sum := sha256.Sum256([]byte(recipe))
		mark.ID = "maintenance-" + ref.ID + "-" + hex.EncodeToString(sum[:6])
		r := NewResult(mark, &uchart.Chart{}, uchart.Verdict{State: uchart.Maintenance}, time.Now().Add(d.c.Retention))
		history, err := d.c.Store.History(ctx, HistoryQuery{Chamber: mark.Chamber, Recipe: recipe, Before: mark.Position(), Limit: d.c.History})
		if err != nil {
			return err
		}
		if _, err := d.c.Store.Commit(ctx, fence, r); err != nil {
			return d.fenced(ref.Chamber, fmt.Errorf("storing the maintenance of %s: %w", ref.Chamber, err))
		}
		if err := d.notify(ctx, history, r.UChart); err != nil {
			return err
		}
	}
	d.cache.drop(ref.Chamber) // marks may lie before contexts that are there
	d.log().Info(fmt.Sprintf("Maintenance of chamber %s: limits start again", ref.Chamber), "context", ref.ID, "recipes", len(recipes))
	return nil
}

// MarshalCompletion returns the message as it travels, or all its faults.
func MarshalCompletion(c Completion) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, errors.Join(errors.New("encoding a completion message"), err)
	}
	return data, nil
}

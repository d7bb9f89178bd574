package partitionprom_test

import (
	"context"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
)

func words(n partitionprom.Names) partitionprom.Options { return partitionprom.Options{Names: n} }

// TestMetricNames: the names are fixed, unless a program has words of its own.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	names := func(o partitionprom.Options) []string {
		t.Helper()
		w, err := partition.New(new(nats.Conn), partition.Config{Name: "orders", Stream: "S", Subject: "s.*"}, partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(partitionprom.NewCollector(w, o)); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range families {
			out = append(out, f.GetName())
		}
		return out
	}
	for _, tt := range []struct {
		name string
		o    partitionprom.Options
		want []string
	}{
		{"fixed", partitionprom.Options{}, []string{"muster_partition_active_workers", "muster_partition_assigned_keys", "muster_partition_retry_queue_keys", "muster_partition_key_movements_total"}},
		{"of keys in the plural", words(partitionprom.Names{Prefix: "orders", Keys: "customers"}), []string{"orders_active_workers", "orders_assigned_customers", "orders_retry_queue_customers", "orders_customer_movements_total"}},
		{"of keys whose plural is irregular", words(partitionprom.Names{Prefix: "orders", Keys: "city"}), []string{"orders_assigned_cities", "orders_city_movements_total"}},
		{"of workers with a word of their own", words(partitionprom.Names{Prefix: "defender", Keys: "chamber", Workers: "defender"}),
			[]string{"defender_active_defenders", "defender_assigned_chambers", "defender_retry_queue_chambers", "defender_chamber_movements_total"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := names(tt.o)
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("there is no %s; there are %s", want, got)
				}
			}
		})
	}
}

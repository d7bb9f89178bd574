package handoff

import (
	"context"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
)

// Contender is one way to share keys out.
type Contender struct {
	Name     string
	Replicas int    // of everything that is stored; as many servers
	Sync     string // always or default: when brokers sync what they acknowledge
	shards   int    // streams of Muster's, 0 for one
	inFlight int    // messages of a slot of Muster's, 0 for one
	slots    int    // instead of the case's, 0 for those
	sourced  bool   // Muster's messages come from an existing stream
	batched  bool   // a backlog is published in atomic batches
	static   bool   // it has no workers that could come and go
	kafka    *kafkaSetting
	start    func(context.Context, env) (group, error)
}

// Contenders are all that are measured, ours first.
func Contenders() []Contender {
	var all []Contender
	for _, replicas := range []int{1, 3} {
		for _, sync := range []string{defaultSync, alwaysSync} {
			all = append(all, onNATS(replicas, sync)...)
			if replicas == 1 {
				all = append(all, onKafka(sync)...)
			}
		}
	}
	return all
}

// onNATS returns the contenders on NATS. The models of other libraries are there to compare
// handoffs, which a disk doesn't decide.
func onNATS(replicas int, sync string) []Contender {
	all := []Contender{
		{Name: "raw JetStream, 1 stream", static: true, start: startRaw(1, rawConsumers)},
		{Name: "raw JetStream, 8 streams", static: true, start: startRaw(8, rawConsumers)},
		{Name: "muster", start: startMuster},
		{Name: "muster, 4 shards", shards: 4, start: startMuster},
		{Name: "muster, 8 shards", shards: 8, start: startMuster},
		{Name: "muster, 64 in flight", inFlight: 64, start: startMuster},
		{Name: "muster, 8 shards, 64 in flight", shards: 8, inFlight: 64, start: startMuster},
		{Name: "muster, existing stream", sourced: true, start: startMuster},
	}
	if sync == defaultSync {
		all = append(all,
			Contender{Name: "filters edited, work queue", start: startFilters(jetstream.WorkQueuePolicy)},
			Contender{Name: "recreated, drained first", start: startRecreated(true)})
	}
	if sync == defaultSync && replicas == 1 {
		all = append(all,
			Contender{Name: "muster, half the slots", start: startHalved},
			Contender{Name: "filters edited, limits", start: startFilters(jetstream.LimitsPolicy)},
			Contender{Name: "recreated, as pcgroups", start: startRecreated(false)})
	}
	if sync == alwaysSync {
		all = append(all, Contender{Name: "raw JetStream, 1 stream, batches", static: true, batched: true, start: startRaw(1, rawConsumers)})
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = replicas, sync
	}
	return all
}

// onKafka returns the contenders on Apache Kafka: clients in Go and Java, with the timers that
// are their defaults and with fast ones.
func onKafka(sync string) []Contender {
	cooperative := kafkaSetting{flush: sync == alwaysSync}
	broker := cooperative
	broker.next = true
	all := []Contender{
		{Name: "Kafka, franz-go, KIP-848, fast", kafka: broker.fast(), start: startFranz},
		{Name: "Kafka, Java, KIP-848, fast", kafka: broker.fast(), start: startJava},
	}
	if sync == defaultSync {
		all = append(all,
			Contender{Name: "Kafka, franz-go, cooperative, fast", kafka: cooperative.fast(), start: startFranz},
			Contender{Name: "Kafka, franz-go, cooperative", kafka: &cooperative, start: startFranz},
			Contender{Name: "Kafka, franz-go, KIP-848", kafka: &broker, start: startFranz},
			Contender{Name: "Kafka, Java, KIP-848", kafka: &broker, start: startJava})
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = 1, sync
	}
	return all
}

// at returns the environment of the contender in a case.
func (c Contender) at(k Case, url string, l *ledger) env {
	if c.slots > 0 {
		k.Slots = c.slots
	}
	return env{Case: k, url: url, replicas: c.Replicas, shards: c.shards, inFlight: c.inFlight, sourced: c.sourced, batched: c.batched, kafka: c.kafka, ledger: l}
}

// serve starts the contender's brokers.
func (c Contender) serve(ctx context.Context, dir string) (servers, string, error) {
	if c.kafka != nil {
		return c.kafka.serve(ctx, c.Replicas)
	}
	options, err := broker.ClusterOptions(c.Replicas, 0, filepath.Join(dir, "store"), "")
	if err != nil {
		return nil, "", err
	}
	orders := make([]order, len(options))
	for i := range options {
		// The publishers know nothing of shards.
		if from, to := musterConfig(env{replicas: c.Replicas, shards: c.shards, inFlight: c.inFlight}).Mapping(); to != "" {
			options[i].Mappings = map[string]string{from: to}
		}
		orders[i] = order{NATS: options[i], Sync: c.Sync}
	}
	all, err := startChildren(ctx, orders)
	if err != nil {
		return nil, "", err
	}
	url := broker.URLs(options)
	if err := ready(ctx, url, c.Replicas); err != nil {
		all.stop()
		return nil, "", err
	}
	return all, url, nil
}

// detects returns how long the contender's brokers take at most to find out that a worker has
// failed, beyond the time that they wait for an acknowledgement.
func (c Contender) detects() time.Duration {
	if c.kafka == nil {
		return 0
	}
	return c.kafka.sessionTimeout()
}

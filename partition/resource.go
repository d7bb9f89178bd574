package partition

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file holds which streams and buckets a group has.

// groupStreams returns the settings of every stream that a group needs, its buckets
// first. It works without that of the events.
func groupStreams(cfg Config, lay layout) []jetstream.StreamConfig {
	var all []jetstream.StreamConfig
	for _, b := range bucketConfigs(cfg) {
		all = append(all, bucketStream(b, bucketConsumers(cfg)))
	}
	for shard := range lay.streams() {
		all = append(all, slotStream(cfg, lay, shard))
	}
	if !cfg.Retry.Disabled {
		all = append(all, retryStream(cfg, lay))
	}
	return all
}

// bucketPrefix and a bucket's name are the name of its stream.
const bucketPrefix = "KV_"

// bucketStream is the stream of a bucket as jetstream.CreateKeyValue makes it, which
// can't be told where its revisions begin, and how many consumers it may have.
func bucketStream(b jetstream.KeyValueConfig, consumers int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   bucketPrefix + b.Bucket,
		Description:            b.Description,
		Subjects:               []string{"$KV." + b.Bucket + ".>"},
		MaxMsgsPerSubject:      max(1, int64(b.History)),
		MaxBytes:               b.MaxBytes,
		MaxMsgSize:             -1,
		MaxMsgs:                -1,
		MaxConsumers:           consumers,
		Storage:                b.Storage,
		Replicas:               b.Replicas,
		AllowRollup:            true,
		DenyDelete:             true,
		Duplicates:             2 * time.Minute,
		AllowDirect:            true,
		Discard:                jetstream.DiscardNew,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: b.LimitMarkerTTL,
	}
}

// resourceName is how people call a stream of the group.
func resourceName(stream string) string {
	if bucket, is := bucketOf(stream); is {
		return "bucket " + bucket
	}
	return "stream " + stream
}

// bucketOf returns the bucket of a stream, if it is that of one.
func bucketOf(stream string) (string, bool) {
	if len(stream) > len(bucketPrefix) && stream[:len(bucketPrefix)] == bucketPrefix {
		return stream[len(bucketPrefix):], true
	}
	return "", false
}

const (
	// pullExpiry is how long a pull waits for a message.
	pullExpiry = 30 * time.Second
	// pinnedTTL is how long the server keeps a pin without a new pull.
	pinnedTTL = 3 * pullExpiry
	// priorityGroup is the one priority group of each slot's consumer.
	priorityGroup = "owner"
	// markerTTL is how long the trace of an expired or deleted key stays.
	markerTTL = time.Minute
	// mapMarkerTTL is the same for a key that expires in the map's bucket. Where
	// several values of a key are kept, the server raises every TTL to it, so a longer
	// one would be how long a dead leader is waited for. A worker that was away for
	// longer sees no trace, and asks whether the leader's lease is there.
	mapMarkerTTL = time.Second
	// mapHistoryDepth is how many values are kept of each key of the map's
	// bucket.
	mapHistoryDepth = 10
	// layoutKey holds what the stream was provisioned with.
	layoutKey = "layout"
)

// slotStream returns the settings of a stream of messages.
func slotStream(cfg Config, lay layout, shard int) jetstream.StreamConfig {
	slots, maxBytes := lay.finest()/cfg.Shards, cfg.Storage.MaxBytes
	if maxBytes > 0 {
		maxBytes = max(1, maxBytes/int64(cfg.Shards))
	}
	var sources []*jetstream.StreamSource
	if lay.sourced() {
		sources = append(sources, lay.streamSource())
	}
	return jetstream.StreamConfig{
		Name:        lay.shardStream(shard),
		Description: fmt.Sprintf("Messages of %s, divided in slots by their key.", cfg.Name),
		Subjects:    []string{lay.subject(shard)},
		Sources:     sources,
		// A message is gone once it is acknowledged, which bounds storage, and
		// lets the consumers keep their state in memory: losing it replays
		// only what is not done.
		Retention:        jetstream.WorkQueuePolicy,
		Discard:          jetstream.DiscardNew,
		MaxAge:           cfg.Storage.MaxAge,
		MaxBytes:         maxBytes,
		Duplicates:       cfg.Storage.Duplicates,
		Storage:          jetstream.FileStorage,
		Replicas:         cfg.Storage.Replicas,
		MaxConsumers:     2 * slots,
		AllowDirect:      true,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: lay.subject(shard), Destination: lay.transform()},
	}
}

// bucketConfigs returns the settings of the group's buckets.
func bucketConfigs(cfg Config) []jetstream.KeyValueConfig {
	all := []jetstream.KeyValueConfig{
		{Bucket: cfg.bucketIDs(), Description: "Stable IDs and who holds them.", LimitMarkerTTL: markerTTL, MaxBytes: idBytes(cfg)},
		{Bucket: cfg.bucketLeases(), Description: "The workers' leases.", LimitMarkerTTL: markerTTL, MaxBytes: leaseBytes(cfg)},
		{Bucket: cfg.bucketMap(), Description: "The assignment map and the leader's lease.", History: mapHistoryDepth, LimitMarkerTTL: mapMarkerTTL, MaxBytes: mapBytes(cfg)},
	}
	for i := range all {
		all[i].Replicas, all[i].Storage = cfg.Storage.Replicas, jetstream.FileStorage
	}
	return all
}

// retryStream returns the settings of the stream of queued messages.
func retryStream(cfg Config, lay layout) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        retryStreamName(cfg.Stream),
		Description: fmt.Sprintf("Messages of %s that failed, and later ones of their keys.", cfg.Name),
		Subjects:    []string{lay.retryPrefix() + ">"},
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Storage.Replicas,
		Discard:     jetstream.DiscardNew,
		// What is queued is read by the stream's leader alone: a replica may be
		// behind.
		AllowDirect: false,
		AllowRollup: true, // of claims
	}
}

// retryStreamName returns the name of the stream with the queued messages of a group
// whose messages are in the given one.
func retryStreamName(stream string) string { return stream + "-retry" }

// bucketConsumers is how many consumers a bucket may have; -1: as many as the servers' default
// is, 1,000 for each stream. Each worker watches the map, and one that starts lists the IDs.
// The leader, operators and monitoring watch, too, and a worker that has just reconnected may
// have two consumers for a moment.
func bucketConsumers(c Config) int {
	if c.Identity.PoolSize <= largePool {
		return -1
	}
	return 2*c.Identity.PoolSize + 100
}

func idBytes(c Config) int64 { return max(4<<20, recordBytes*int64(c.Identity.PoolSize)) } // other groups have theirs there, too

func leaseBytes(c Config) int64 { return max(1<<20, recordBytes*int64(c.Identity.PoolSize)) }

func mapBytes(c Config) int64 {
	return min(8<<20+mapHistoryDepth*slotBytes*int64(layout{base: c.Slots}.finest()), maxMapBucket)
}

// What the buckets can need, in bytes: IDs and leases have less than 1 KiB each. Those of
// the map hold some values of a few dozen bytes per slot.
const (
	recordBytes  = 4 << 10
	slotBytes    = 64
	maxMapBucket = 128 << 20
)

package partition

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file holds which streams and buckets a group has.

// groupStreams returns the settings of every stream that a group needs, its buckets
// first. It works without that of the events.
func groupStreams(cfg Config, lay layout) []jetstream.StreamConfig {
	var all []jetstream.StreamConfig
	for _, b := range bucketConfigs(cfg) {
		all = append(all, bucketStream(b))
	}
	for shard := range lay.streams() {
		all = append(all, slotStream(cfg, lay, shard))
	}
	if cfg.Retry.Enabled {
		all = append(all, retryStream(cfg, lay))
	}
	return all
}

// bucketPrefix and a bucket's name are the name of its stream.
const bucketPrefix = "KV_"

// bucketStream is the stream of a bucket as jetstream.CreateKeyValue makes it, which
// can't be told where its revisions begin.
func bucketStream(b jetstream.KeyValueConfig) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   bucketPrefix + b.Bucket,
		Description:            b.Description,
		Subjects:               []string{"$KV." + b.Bucket + ".>"},
		MaxMsgsPerSubject:      max(1, int64(b.History)),
		MaxBytes:               b.MaxBytes,
		MaxMsgSize:             -1,
		MaxMsgs:                -1,
		MaxConsumers:           -1,
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

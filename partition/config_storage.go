package partition

import "time"

// Storage bounds what the servers keep of a group's messages.
type Storage struct {
	// Replicas of the streams, their consumers and the buckets: 1, 3 or 5; default 1.
	Replicas int
	// MaxAge is how long an unprocessed message is kept; more than 0, default 7 days.
	MaxAge time.Duration
	// MaxBytes limits the stream, or with Shards all of them, each with an equal part. Beyond
	// it publishers get an error (see IsFull) and can publish again later; nothing that is
	// stored is dropped. Default: at most half of the storage that no stream of the servers has
	// reserved, and at most 32 GiB, so that a backlog leaves room for the leases; a limit that
	// the stream has already stays. -1 is no limit: then a backlog that fills the servers'
	// storage stops the group.
	MaxBytes int64
	// Duplicates is the window in which a message ID is recognised again; default 2 minutes.
	Duplicates time.Duration
}

func (s Storage) resolve() Storage {
	defaulted(&s.Replicas, 1)
	defaulted(&s.MaxAge, 7*24*time.Hour)
	defaulted(&s.Duplicates, 2*time.Minute)
	return s
}

func (s Storage) validate(f *faults) {
	if s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5 {
		f.add("Storage.Replicas is %d: give 1, 3 or 5", s.Replicas)
	}
	f.positive("Storage.MaxAge", s.MaxAge)
	if s.MaxBytes < -1 {
		f.add("Storage.MaxBytes is %d: give -1 for no limit, 0 for the default, or a number of bytes", s.MaxBytes)
	}
}

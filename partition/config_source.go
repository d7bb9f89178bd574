package partition

import "time"

// Source is an existing stream that a group takes its messages from. The servers copy each
// message of Config.Subject into the group's own stream, and the group works on the copies. The
// source keeps its messages, and other groups, consumers and readers of it notice nothing. It
// needs nats-server 2.14 or later, and one stream for the group (Config.Shards 1). See
// docs/partition.md, "An existing stream".
type Source struct {
	// Stream is the name of the existing stream, which must have subjects that Config.Subject
	// covers; empty: publishers' messages go to the group's own stream.
	Stream string
	// Since is the time from which on messages are taken that are in the source when the group is
	// provisioned; zero: all of them. Later calls of Provision leave it as it is.
	Since time.Time
}

func (s Source) validate(c Config, p pattern, f *faults) {
	if s.Stream == "" {
		if !s.Since.IsZero() {
			f.add("Source.Since is set without a Source.Stream: give the stream, or leave Since out")
		}
		return
	}
	if !sourceName.MatchString(s.Stream) {
		f.add("Source.Stream is %q: give 1 to 255 characters without spaces, dots, slashes and the wildcards * and >", s.Stream)
	}
	if s.Stream == c.Stream {
		f.add("Source.Stream is Stream itself, %q: Stream is the group's own, which Provision creates: give another name for it", s.Stream)
	}
	if c.Shards > 1 {
		f.add("Shards is %d with a Source.Stream: give 1, a stream can't take only the messages of its slots from another one", c.Shards)
	}
	direct := layout{group: c.Name}.directPrefix()
	if p.subject != "" && p.overlaps(direct) {
		f.add("Subject is %q: it covers subjects of %s>, by which dead letters return: give one that covers none, such as one that begins with a word of its own", c.Subject, direct)
	}
}

package partition

import "strings"

// originOf returns the stream and the consumer that a message came from, by its
// reply subject: "$JS.ACK.<stream>.<consumer>.…", with domain and account before
// the stream in its newer form; "" for anything else. Each message is asked, so it
// allocates nothing.
func originOf(reply string) (stream, consumer string) {
	rest, acks := strings.CutPrefix(reply, "$JS.ACK.")
	tokens := strings.Count(reply, ".") + 1
	if !acks || tokens < 9 {
		return "", ""
	}
	if tokens >= 11 {
		_, rest, _ = strings.Cut(rest, ".")
		_, rest, _ = strings.Cut(rest, ".")
	}
	stream, rest, _ = strings.Cut(rest, ".")
	consumer, _, _ = strings.Cut(rest, ".")
	return stream, consumer
}

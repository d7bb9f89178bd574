package partition

import "strings"

// originOf returns the stream and the consumer that a message came from, by its
// reply subject: "$JS.ACK.<stream>.<consumer>.…", with domain and account before
// the stream in its newer form; "" for anything else.
func originOf(reply string) (stream, consumer string) {
	tokens := strings.Split(reply, ".")
	switch {
	case len(tokens) < 9 || tokens[0] != "$JS" || tokens[1] != "ACK":
		return "", ""
	case len(tokens) >= 11:
		return tokens[4], tokens[5]
	default:
		return tokens[2], tokens[3]
	}
}

package handoff

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// message names one message: the n-th, from 0, of a key.
type message struct{ key, n int }

// messageSize is how long every message is, in bytes.
const messageSize = 256

func (m message) String() string { return strconv.Itoa(m.key) + " " + strconv.Itoa(m.n) }

// encode returns key, number and dots up to the size, separated by spaces.
func (m message) encode() []byte {
	data := make([]byte, 0, messageSize)
	data = strconv.AppendInt(data, int64(m.key), 10)
	data = append(data, ' ')
	data = strconv.AppendInt(data, int64(m.n), 10)
	data = append(data, ' ')
	for len(data) < messageSize {
		data = append(data, '.')
	}
	return data
}

func decode(data []byte) (m message, err error) {
	key, rest, _ := bytes.Cut(data, []byte(" "))
	n, _, padded := bytes.Cut(rest, []byte(" "))
	if m.key, err = strconv.Atoi(string(key)); err == nil {
		m.n, err = strconv.Atoi(string(n))
	}
	if err != nil || !padded {
		return m, fmt.Errorf("%.40q is not a message of this run", data)
	}
	return m, nil
}

// tokens returns the two subject tokens of a key.
func tokens(key int) (tool, chamber string) {
	return fmt.Sprintf("tool%03d", key/4+1), fmt.Sprintf("chamber%d", key%4+1)
}

func subjectOf(key int) string {
	tool, chamber := tokens(key)
	return "dc." + tool + "." + chamber + ".completion"
}

// run is one call of the handler.
type run struct {
	message
	worker     int
	unit       int       // that moves as a whole: a slot, a partition or a key
	arrived    time.Time // when the broker stored the message
	start, end time.Time // end is zero while it goes on
	done       bool      // it was processed to its end; else it was given up then
}

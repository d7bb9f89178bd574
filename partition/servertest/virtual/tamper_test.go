//go:build !race

package virtual

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// tamper changes what a client and its server say to each other, so that a worker is
// wrong in a way. nil changes nothing.
type tamper struct {
	toServer, toClient func(*wire, *frame) []*frame // nil: what is said passes
}

// up returns what reaches the server of what the client sends.
func (t *tamper) up(w *wire, b []byte) []byte {
	if t == nil || t.toServer == nil {
		return b
	}
	return w.up.through(b, func(f *frame) []*frame { return t.toServer(w, f) })
}

// down returns what reaches the client of what the server sends.
func (t *tamper) down(w *wire, b []byte) []byte {
	if t == nil || t.toClient == nil {
		return b
	}
	return w.down.through(b, func(f *frame) []*frame { return t.toClient(w, f) })
}

// frame is one operation of the NATS client protocol.
type frame struct {
	args   []string // PUB and its arguments, without the lengths
	header []byte
	data   []byte
}

func (f *frame) op() string { return f.args[0] }

// subject returns what a message is published to, or was published to; "" for others.
func (f *frame) subject() string {
	if _, _, is := payload(f.op()); !is {
		return ""
	}
	return f.args[1]
}

// reply returns where the answer goes, "" for none.
func (f *frame) reply() string {
	if n, _, is := payload(f.op()); is && len(f.args) > n {
		return f.args[n]
	}
	return ""
}

// payload reports whether an operation has one, how many arguments come before the
// reply, and whether there is a header.
func payload(op string) (before int, header, is bool) {
	switch op {
	case "PUB":
		return 2, false, true
	case "HPUB":
		return 2, true, true
	case "MSG":
		return 3, false, true
	case "HMSG":
		return 3, true, true
	}
	return 0, false, false
}

func (f *frame) encode() []byte {
	line := strings.Join(f.args, " ")
	_, header, is := payload(f.op())
	switch {
	case header:
		return append(append(append(fmt.Appendf(nil, "%s %d %d\r\n", line, len(f.header), len(f.header)+len(f.data)), f.header...), f.data...), "\r\n"...)
	case is:
		return append(append(fmt.Appendf(nil, "%s %d\r\n", line, len(f.data)), f.data...), "\r\n"...)
	}
	return []byte(line + "\r\n")
}

// frames is a part of a stream of operations, of which the last may be incomplete.
type frames struct{ rest []byte }

// through takes more of the stream in, and returns what becomes of its operations.
func (s *frames) through(b []byte, change func(*frame) []*frame) []byte {
	s.rest = append(s.rest, b...)
	var out []byte
	for f := s.next(); f != nil; f = s.next() {
		for _, g := range change(f) {
			out = append(out, g.encode()...)
		}
	}
	return out
}

// next takes the next operation off the stream, nil if it is incomplete.
func (s *frames) next() *frame {
	line, rest, ok := bytes.Cut(s.rest, []byte("\r\n"))
	if !ok {
		return nil
	}
	f := &frame{args: strings.Fields(string(line))}
	if len(f.args) == 0 {
		f.args = []string{""}
	}
	f.args[0] = strings.ToUpper(f.args[0])
	_, header, is := payload(f.op())
	if !is {
		if f.op() == "CONNECT" || f.op() == "INFO" || f.op() == "-ERR" {
			f.args = []string{string(line)} // with its blanks
		}
		s.rest = rest
		return f
	}
	last := len(f.args) - 1
	size, _ := strconv.Atoi(f.args[last])
	if len(rest) < size+2 {
		return nil
	}
	head := 0
	f.args = f.args[:last]
	if header {
		head, _ = strconv.Atoi(f.args[last-1])
		f.args = f.args[:last-1]
	}
	f.header, f.data = append([]byte(nil), rest[:head]...), append([]byte(nil), rest[head:size]...)
	s.rest = rest[size+2:]
	return f
}

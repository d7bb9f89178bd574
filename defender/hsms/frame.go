package hsms

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/muster-dev/muster/defender/secs"
)

// The kinds of messages, by their session type (SType).
const (
	data        = 0
	selectReq   = 1
	selectRsp   = 2
	deselectReq = 3
	deselectRsp = 4
	linktestReq = 5
	linktestRsp = 6
	rejectReq   = 7
	separateReq = 9
)

// headerBytes is how long the header of a message is.
const headerBytes = 10

// noSession is the session of control messages in HSMS-SS.
const noSession = 0xffff

// frame is a message as it travels: its header, and the text of a data message.
type frame struct {
	session      uint16
	byte2, byte3 byte // of a data message: stream with the bit that asks for a reply, and function
	presentation byte // PType: 0, which is SECS-II
	kind         byte // SType
	system       uint32
	text         []byte
}

// errCorrupt is what errors of a malformed frame wrap: where the next one begins is unknown.
var errCorrupt = errors.New("no HSMS message")

// readFrame reads a frame of at most limit bytes. It takes memory for what has arrived, not
// for what is claimed.
func readFrame(r io.Reader, limit int) (frame, error) {
	var head [4 + headerBytes]byte
	if _, err := io.ReadFull(r, head[:4]); err != nil {
		return frame{}, err
	}
	length := binary.BigEndian.Uint32(head[:4])
	switch {
	case length < headerBytes:
		return frame{}, fmt.Errorf("%w: it claims %d bytes, and a header has %d", errCorrupt, length, headerBytes)
	case uint64(length) > uint64(limit):
		return frame{}, fmt.Errorf("%w: it claims %d bytes, at most %d are taken", errCorrupt, length, limit)
	}
	if _, err := io.ReadFull(r, head[4:]); err != nil {
		return frame{}, unexpected(err)
	}
	h := head[4:]
	f := frame{
		session: binary.BigEndian.Uint16(h), byte2: h[2], byte3: h[3],
		presentation: h[4], kind: h[5], system: binary.BigEndian.Uint32(h[6:]),
	}
	if n := int64(length) - headerBytes; n > 0 {
		var text bytes.Buffer
		if _, err := io.CopyN(&text, r, n); err != nil {
			return frame{}, unexpected(err)
		}
		f.text = text.Bytes()
	}
	return f, nil
}

// unexpected returns the error of a frame that has begun and doesn't go on.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// append appends the frame as it travels.
func (f frame) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(headerBytes+len(f.text)))
	return append(append(dst, f.header()...), f.text...)
}

func (f frame) header() []byte {
	h := binary.BigEndian.AppendUint16(make([]byte, 0, headerBytes), f.session)
	h = append(h, f.byte2, f.byte3, f.presentation, f.kind)
	return binary.BigEndian.AppendUint32(h, f.system)
}

// wantsReply is the bit beside the stream that asks for a reply.
const wantsReply = 0x80

// frameOf returns the frame of a data message.
func frameOf(m secs.Message, session uint16, system uint32) (frame, error) {
	f := frame{session: session, byte2: m.Stream &^ wantsReply, byte3: m.Function, system: system}
	if m.Reply {
		f.byte2 |= wantsReply
	}
	if m.Item == nil {
		return f, nil
	}
	text, err := m.Item.Append(nil)
	if err != nil {
		return frame{}, fmt.Errorf("encoding %s: %w", m.Name(), err)
	}
	f.text = text
	return f, nil
}

// message returns the data message in a frame. Stream and function are there also if the
// text can't be decoded.
func (f frame) message() (secs.Message, error) {
	m := secs.Message{Stream: f.byte2 &^ wantsReply, Function: f.byte3, Reply: f.byte2&wantsReply != 0}
	if len(f.text) == 0 {
		return m, nil
	}
	item, err := secs.Decode(f.text)
	if err != nil {
		return m, fmt.Errorf("reading %s: %w", m.Name(), err)
	}
	m.Item = &item
	return m, nil
}

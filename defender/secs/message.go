package secs

import "fmt"

// Message is a SECS-II message: a stream, a function, and one item or none.
type Message struct {
	Stream   byte // 0 to 127
	Function byte // odd: a primary message; even: the reply to the one before it
	Reply    bool // a reply is wanted
	Item     *Item
}

// New returns a primary message that wants a reply.
func New(stream, function byte, item Item) Message {
	return Message{Stream: stream, Function: function, Reply: true, Item: &item}
}

// Answer returns the reply to a message.
func (m Message) Answer(item Item) Message {
	return Message{Stream: m.Stream, Function: m.Function + 1, Item: &item}
}

// Is reports whether the message has a stream and a function.
func (m Message) Is(stream, function byte) bool { return m.Stream == stream && m.Function == function }

// Body returns the message's item, which is an empty list if there is none.
func (m Message) Body() Item {
	if m.Item == nil {
		return Item{}
	}
	return *m.Item
}

// Name returns stream and function, such as S6F11.
func (m Message) Name() string { return fmt.Sprintf("S%dF%d", m.Stream, m.Function) }

// String returns the message as SML has it, on one line.
func (m Message) String() string {
	text := m.Name()
	if m.Reply {
		text += " W"
	}
	if m.Item != nil {
		text += " " + m.Item.String()
	}
	return text
}

package hsms

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender/secs"
)

// Config is what a connection works with.
type Config struct {
	Session  uint16 // ID of the session, which is the equipment's device ID
	Timers   Timers
	MaxBytes int // of one message; 0 is 16 MiB
	Logger   *slog.Logger
}

func (c Config) orDefaults() Config {
	c.Timers = c.Timers.orDefaults()
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Errors that a caller may look for.
var (
	ErrClosed  = errors.New("the connection is closed")
	ErrTimeout = errors.New("no reply")                    // within T3 or T6
	ErrAborted = errors.New("the transaction was aborted") // function 0, or a message of stream 9
)

// Primary is a primary message of the other side.
type Primary struct {
	secs.Message
	system uint32
}

// waiting is how many primary messages wait to be taken.
const waiting = 256

// Conn is a selected connection. It is safe for concurrent use.
type Conn struct {
	raw       net.Conn
	config    Config
	primaries chan Primary
	selected  chan struct{} // closed when the session is selected
	once      sync.Once     // of closing that
	ended     chan struct{} // closed when the reader has ended

	writing sync.Mutex
	blocked atomic.Bool // the reader waits for somebody to take a primary message

	mu      sync.Mutex
	pending map[uint32]chan frame // requests by their system bytes
	system  uint32                // of the request before
	cause   error                 // why it ends; nil while it doesn't
	ending  chan struct{}         // closed with the cause
}

func newConn(raw net.Conn, config Config) *Conn {
	c := &Conn{
		raw: raw, config: config, primaries: make(chan Primary, waiting), selected: make(chan struct{}),
		ended: make(chan struct{}), ending: make(chan struct{}), pending: map[uint32]chan frame{},
	}
	go c.read()
	return c
}

// begin tests the link from now on.
func (c *Conn) begin() {
	go func() {
		tick := time.NewTicker(c.config.Timers.Linktest)
		defer tick.Stop()
		for {
			select {
			case <-c.ending:
				return
			case <-tick.C:
			}
			_, err := c.control(context.Background(), linktestReq)
			// A reader that waits for its own side can't see the answer, which says
			// nothing about the link.
			unseen := errors.Is(err, ErrTimeout) && c.blocked.Load()
			if err != nil && !unseen {
				c.end(fmt.Errorf("testing the link: %w", err))
				return
			}
		}
	}()
}

// Primaries returns the channel of primary messages, which is closed after the last.
func (c *Conn) Primaries() <-chan Primary { return c.primaries }

// Err returns why the connection has ended; nil while it hasn't.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Close separates from the other side and waits until nothing is read any more.
func (c *Conn) Close() {
	if c.Err() == nil {
		// It may be broken: then there is nothing to tell.
		_ = c.write(frame{session: noSession, kind: separateReq, system: c.next()})
	}
	c.end(ErrClosed)
	<-c.ended
}

// end ends the connection for a reason, of which the first counts.
func (c *Conn) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.ending)
		_ = c.raw.Close()
	}
}

// Request sends a message that wants a reply, and returns the reply. An error that wraps
// [ErrTimeout] or [ErrAborted] leaves the connection as it is.
func (c *Conn) Request(ctx context.Context, m secs.Message) (secs.Message, error) {
	m.Reply = true
	answer, err := c.transact(ctx, c.config.Timers.Reply, func(system uint32) (frame, error) {
		return frameOf(m, c.config.Session, system)
	})
	if err != nil {
		return secs.Message{}, fmt.Errorf("%s: %w", m.Name(), err)
	}
	reply, err := answer.message()
	switch {
	case answer.kind == rejectReq:
		return secs.Message{}, fmt.Errorf("%s: %w: the message was rejected with reason %d", m.Name(), ErrAborted, answer.byte3)
	case err != nil:
		return secs.Message{}, fmt.Errorf("%s: %w: %w", m.Name(), ErrAborted, err)
	case reply.Stream == 9:
		return secs.Message{}, fmt.Errorf("%s: %w: the equipment answers with %s (%s)", m.Name(), ErrAborted, reply.Name(), errorNames[reply.Function])
	case reply.Stream != m.Stream || reply.Function != m.Function+1:
		return secs.Message{}, fmt.Errorf("%s: %w: the equipment answers with %s", m.Name(), ErrAborted, reply.Name())
	}
	return reply, nil
}

// Send sends a message that wants no reply.
func (c *Conn) Send(m secs.Message) error {
	m.Reply = false
	f, err := frameOf(m, c.config.Session, c.next())
	if err != nil {
		return err
	}
	return c.write(f)
}

// Reply sends the reply to a primary message, if it wants one.
func (c *Conn) Reply(to Primary, item secs.Item) error {
	if !to.Reply {
		return nil
	}
	f, err := frameOf(to.Answer(item), c.config.Session, to.system)
	if err != nil {
		return err
	}
	return c.write(f)
}

// Abort tells the other side that a primary message can't be answered.
func (c *Conn) Abort(to Primary) error {
	if !to.Reply {
		return nil
	}
	return c.write(frame{session: c.config.Session, byte2: to.Stream, system: to.system})
}

// control sends a control message and returns its answer.
func (c *Conn) control(ctx context.Context, kind byte) (frame, error) {
	return c.transact(ctx, c.config.Timers.Control, func(system uint32) (frame, error) {
		return frame{session: noSession, kind: kind, system: system}, nil
	})
}

func (c *Conn) next() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.system++
	return c.system
}

// transact sends what build returns for system bytes of its own, and waits for the answer.
func (c *Conn) transact(ctx context.Context, limit time.Duration, build func(uint32) (frame, error)) (frame, error) {
	system, answer := c.expect()
	defer c.forget(system)
	f, err := build(system)
	if err != nil {
		return frame{}, err
	}
	if err := c.write(f); err != nil {
		return frame{}, err
	}

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case f := <-answer:
		return f, nil
	case <-timer.C:
		return frame{}, fmt.Errorf("%w within %v", ErrTimeout, limit)
	case <-c.ending:
		return frame{}, fmt.Errorf("%w: %w", ErrClosed, c.Err())
	case <-ctx.Done():
		return frame{}, ctx.Err()
	}
}

// expect notes a request, before it is sent: the answer may be there at once.
func (c *Conn) expect() (uint32, <-chan frame) {
	system := c.next()
	answer := make(chan frame, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[system] = answer
	return system, answer
}

func (c *Conn) forget(system uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, system)
}

// answered gives a frame to the request with its system bytes, and reports whether there is one.
func (c *Conn) answered(system uint32, f frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.pending[system]
	if !ok {
		return false
	}
	delete(c.pending, system) // there is room for one
	answer <- f
	return true
}

// write sends a frame. A failure ends the connection: a part of the frame may be sent.
func (c *Conn) write(f frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.raw.SetWriteDeadline(time.Now().Add(c.config.Timers.Control)) // a failure shows in the writing
	if _, err := c.raw.Write(f.append(nil)); err != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
		c.end(err)
		return err
	}
	return nil
}

// read takes what arrives until the connection ends.
func (c *Conn) read() {
	defer close(c.ended)
	defer close(c.primaries)
	wire := &characters{raw: c.raw, limit: c.config.Timers.Character}
	buffered := bufio.NewReaderSize(wire, 64<<10)
	for {
		wire.inside = false
		_, err := buffered.Peek(1)
		wire.inside = true
		var f frame
		if err == nil {
			f, err = readFrame(buffered, c.config.MaxBytes)
		}
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrClosed, ended(err)))
			return
		}
	}
}

// ended says what an error of reading means.
func ended(err error) error {
	timeout := net.Error(nil)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the other side closed it")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("a message stopped within, for longer than T8")
	}
	return err
}

// characters reads from a connection: without a limit between messages, within T8 inside one.
type characters struct {
	raw    net.Conn
	limit  time.Duration
	inside bool
}

func (c *characters) Read(b []byte) (int, error) {
	var until time.Time
	if c.inside {
		until = time.Now().Add(c.limit)
	}
	if err := c.raw.SetReadDeadline(until); err != nil {
		return 0, err
	}
	return c.raw.Read(b)
}

// Reasons of a reject.req.
const (
	unknownKind         = 1
	unknownPresentation = 2
	noTransaction       = 3
	notSelected         = 4
)

// take handles a frame. The error ends the connection.
func (c *Conn) take(f frame) error {
	if f.presentation != 0 {
		return c.reject(f, unknownPresentation)
	}
	switch f.kind {
	case data:
		return c.takeData(f)
	case selectReq:
		return c.takeSelect(f)
	case linktestReq:
		return c.write(frame{session: f.session, kind: linktestRsp, system: f.system})
	case deselectReq:
		_ = c.write(frame{session: f.session, kind: deselectRsp, system: f.system}) // it ends anyway
		return errors.New("the other side deselected the session")
	case separateReq:
		return errors.New("the other side separated")
	case selectRsp, deselectRsp, linktestRsp:
		if f.kind == selectRsp && f.byte3 == 0 {
			c.once.Do(func() { close(c.selected) })
		}
		if !c.answered(f.system, f) {
			return c.reject(f, noTransaction)
		}
		return nil
	case rejectReq:
		c.answered(f.system, f) // one that nobody waits for is of no interest
		return nil
	}
	return c.reject(f, unknownKind)
}

// takeSelect answers the other side's wish to select the session, which it can do once.
func (c *Conn) takeSelect(f frame) error {
	answer := frame{session: f.session, byte3: 1, kind: selectRsp, system: f.system}
	c.once.Do(func() {
		answer.byte3 = 0
		close(c.selected)
	})
	return c.write(answer)
}

func (c *Conn) isSelected() bool {
	select {
	case <-c.selected:
		return true
	default:
		return false
	}
}

func (c *Conn) reject(f frame, reason byte) error {
	what := f.kind
	if reason == unknownPresentation {
		what = f.presentation
	}
	return c.write(frame{session: f.session, byte2: what, byte3: reason, kind: rejectReq, system: f.system})
}

// errorNames says what the functions of stream 9 mean.
var errorNames = map[byte]string{
	1: "unknown device ID: is the plan's session right?", 3: "unknown stream", 5: "unknown function",
	7: "illegal data", 9: "transaction timeout", 11: "data too long", 13: "conversation timeout",
}

// takeData gives a data message to who waits for it: a request for its reply, and for an
// error of stream 9 that names it; everything else goes to the channel.
func (c *Conn) takeData(f frame) error {
	if !c.isSelected() {
		return c.reject(f, notSelected)
	}
	stream := f.byte2 &^ wantsReply
	if f.byte3%2 == 0 {
		if !c.answered(f.system, f) {
			c.config.Logger.Debug("late reply", "stream", stream, "function", f.byte3)
		}
		return nil
	}
	m, err := f.message()
	if err != nil {
		c.config.Logger.Warn("message not taken", "err", err)
		return c.Abort(Primary{Message: m, system: f.system})
	}
	if header := m.Body(); m.Stream == 9 && len(header.Data) == headerBytes {
		if c.answered(binary.BigEndian.Uint32(header.Data[6:]), f) {
			return nil
		}
	}
	c.blocked.Store(true)
	defer c.blocked.Store(false)
	select {
	case c.primaries <- Primary{Message: m, system: f.system}:
	case <-c.ending:
		return ErrClosed
	}
	return nil
}

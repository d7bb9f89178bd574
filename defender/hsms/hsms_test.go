package hsms

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/secs"
)

const soon = 50 * time.Millisecond // of timers that a test waits for

// wire is the far end of a connection, which a test writes and reads by hand.
type wire struct {
	net.Conn
	t *testing.T
}

func (w wire) send(text string) {
	w.t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w wire) receive() frame {
	w.t.Helper()
	f, err := readFrame(w, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// selected returns a connection that is selected, and its far end.
func selected(t *testing.T, timers Timers) (*Conn, wire) {
	t.Helper()
	l := listen(t)
	far := make(chan wire, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		w := wire{raw, t}
		f, _ := readFrame(raw, 100)
		_, _ = raw.Write(frame{session: f.session, kind: selectRsp, system: f.system}.append(nil))
		far <- w
	}()
	d := Dialer{Address: l.Addr().String(), Config: Config{Session: 3, Timers: timers}}
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := <-far
	t.Cleanup(func() { c.Close(); _ = w.Close() })
	return c, w
}

// TestFrame has bytes that follow from the tables of E37.
func TestFrame(t *testing.T) {
	for want, f := range map[string]frame{
		"0000000a ffff 00 00 00 01 00000007":      {session: noSession, kind: selectReq, system: 7},
		"0000000a ffff 00 00 00 05 01020304":      {session: noSession, kind: linktestReq, system: 0x01020304},
		"0000000c 0003 81 01 00 00 00000001 0100": {session: 3, byte2: 0x81, byte3: 1, system: 1, text: []byte{1, 0}},
	} {
		b := f.append(nil)
		if got := hex.EncodeToString(b); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%+v travels as %s, want %s", f, got, want)
		}
		back, err := readFrame(bytes.NewReader(b), 100)
		if err != nil || !bytes.Equal(back.append(nil), b) {
			t.Errorf("%s is read as %+v, %v", want, back, err)
		}
	}
	for text, want := range map[string]string{
		"":                               "EOF",
		"00":                             "unexpected EOF",
		"00000009":                       "claims 9 bytes, and a header has 10",
		"7fffffff":                       "at most 100 are taken",
		"0000000c 0003":                  "unexpected EOF",
		"0000000c0003810100000000000101": "unexpected EOF",
	} {
		b, _ := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if _, err := readFrame(bytes.NewReader(b), 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestConn_requests_and_primaries(t *testing.T) {
	l := listen(t)
	accepted := make(chan *Conn, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		c, err := Accept(t.Context(), raw, Config{})
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	d := Dialer{Address: l.Addr().String()}
	host, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	equipment := <-accepted
	defer equipment.Close()
	go func() {
		for p := range equipment.Primaries() {
			if p.Is(2, 41) {
				_ = equipment.Abort(p)
				continue
			}
			_ = equipment.Reply(p, secs.L(p.Body(), secs.A("back")))
		}
	}()

	reply, err := host.Request(t.Context(), secs.New(1, 1, secs.A("there?")))
	if err != nil || reply.String() != `S1F2 <L <A "there?"> <A "back">>` {
		t.Errorf("%v, %v", reply, err)
	}
	if _, err := host.Request(t.Context(), secs.New(2, 41, secs.L())); !errors.Is(err, ErrAborted) {
		t.Errorf("function 0: %v", err)
	}
	if err := equipment.Send(secs.New(6, 1, secs.Uint(1))); err != nil {
		t.Fatal(err)
	}
	if p := <-host.Primaries(); p.String() != "S6F1 <U4 1>" {
		t.Errorf("%v", p)
	}
	equipment.Close()
	if _, open := <-host.Primaries(); open {
		t.Error("there is a message after the end")
	}
	if err := host.Err(); err == nil || !strings.Contains(err.Error(), "separated") {
		t.Error(err)
	}
}

func TestConn_timers(t *testing.T) {
	t.Run("T3 ends the transaction and not the connection", func(t *testing.T) {
		c, w := selected(t, Timers{Reply: soon})
		if _, err := c.Request(t.Context(), secs.New(1, 1, secs.L())); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
		w.receive()
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
	t.Run("T5 is between attempts", func(t *testing.T) {
		l := listen(t)
		_ = l.Close()
		d := Dialer{Address: l.Addr().String(), Config: Config{Timers: Timers{Separation: soon}}}
		began := time.Now()
		for range 3 {
			if _, err := d.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "connecting to") {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took < 2*soon {
			t.Errorf("three attempts took %v, less than two times T5", took)
		}
	})
	t.Run("T6 of select", func(t *testing.T) {
		l := listen(t)
		d := Dialer{Address: l.Addr().String(), Config: Config{Timers: Timers{Control: soon}}}
		if _, err := d.Dial(t.Context()); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
	})
	t.Run("T6 of linktest", func(t *testing.T) {
		c, _ := selected(t, Timers{Control: soon, Linktest: soon})
		for range c.Primaries() {
		}
		if err := c.Err(); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "testing the link") {
			t.Errorf("%v", err)
		}
	})
	t.Run("T7", func(t *testing.T) {
		l := listen(t)
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Accept(t.Context(), far, Config{Timers: Timers{NotSelected: soon}}); err == nil || !strings.Contains(err.Error(), "within T7") {
			t.Errorf("%v", err)
		}
		if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is left open: %v", err)
		}
	})
	t.Run("T8 is within a message only", func(t *testing.T) {
		c, w := selected(t, Timers{Character: soon})
		time.Sleep(2 * soon)
		w.send("0000000c 0003 06 01 00 00 00000001 0100")
		if p := <-c.Primaries(); !p.Is(6, 1) {
			t.Errorf("%v", p)
		}
		w.send("0000000c 0003 06")
		for range c.Primaries() {
		}
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "longer than T8") {
			t.Errorf("%v", err)
		}
	})
}

func TestConn_control(t *testing.T) {
	c, w := selected(t, Timers{})
	for name, step := range map[string]struct{ send, want string }{
		"a linktest is answered":        {"0000000a ffff 00 00 00 05 00000009", "ffff0000000600000009"},
		"an unknown SType is rejected":  {"0000000a ffff 00 00 00 63 00000009", "ffff6301000700000009"},
		"an unknown PType is rejected":  {"0000000a 0003 81 01 05 00 00000009", "00030502000700000009"},
		"an answer to nothing":          {"0000000a ffff 00 00 00 06 00000009", "ffff0603000700000009"},
		"a second select":               {"0000000a ffff 00 00 00 01 00000009", "ffff0001000200000009"},
		"what can't be read is aborted": {"0000000c 0003 86 0b 00 00 00000009 41 05", "00030600000000000009"},
		"a reply that nobody waits for": {"0000000a 0003 01 02 00 00 00000099 0000000a ffff 00 00 00 05 00000009", "ffff0000000600000009"},
		"a rejection nobody asked for":  {"0000000a ffff 00 04 00 07 00000099 0000000a ffff 00 00 00 05 00000009", "ffff0000000600000009"},
	} {
		w.send(step.send)
		if got := hex.EncodeToString(w.receive().header()); got != step.want {
			t.Errorf("%s: %s, want %s", name, got, step.want)
		}
	}

	failed := make(chan error, 1)
	ask := func() frame {
		go func() {
			_, err := c.Request(context.Background(), secs.New(2, 43, secs.L()))
			failed <- err
		}()
		return w.receive()
	}
	f := ask()
	text := append([]byte{0x21, headerBytes}, f.header()...)
	_, _ = w.Write(frame{session: 3, byte2: 9, byte3: 5, system: 77, text: text}.append(nil))
	if err := <-failed; !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "S2F43") || !strings.Contains(err.Error(), "S9F5 (unknown function)") {
		t.Errorf("S9F5: %v", err)
	}
	f = ask()
	_, _ = w.Write(frame{session: 3, byte2: 0, byte3: notSelected, kind: rejectReq, system: f.system}.append(nil))
	if err := <-failed; !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "reason 4") {
		t.Errorf("rejected: %v", err)
	}
	f = ask()
	_, _ = w.Write(frame{session: 3, byte2: 2, byte3: 44, system: f.system, text: []byte{0x41}}.append(nil))
	if err := <-failed; !errors.Is(err, ErrAborted) || !errors.Is(err, secs.ErrCorrupt) {
		t.Errorf("a reply that can't be read: %v", err)
	}

	ask()
	w.send("0000000a ffff 00 00 00 03 00000009")
	if err := <-failed; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "deselected") {
		t.Errorf("deselect: %v", err)
	}
}

func TestDialer_refused(t *testing.T) {
	l := listen(t)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		f, _ := readFrame(raw, 100)
		_, _ = raw.Write(frame{session: 3, byte2: 6, byte3: 1, system: 1}.append(nil))
		if r, _ := readFrame(raw, 100); r.kind != rejectReq || r.byte3 != notSelected {
			t.Errorf("data before select is answered by %+v", r)
		}
		_, _ = raw.Write(frame{session: f.session, byte3: 1, kind: selectRsp, system: f.system}.append(nil))
	}()
	d := Dialer{Address: l.Addr().String()}
	if _, err := d.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "is another host connected?") {
		t.Errorf("%v", err)
	}
}

// TestConn_slow has a side that takes nothing: the reader waits, and the link isn't said to be broken.
func TestConn_slow(t *testing.T) {
	c, w := selected(t, Timers{Control: soon, Linktest: soon})
	const sent = waiting + 50
	for range sent {
		w.send("0000000a 0003 06 01 00 00 00000001")
	}
	time.Sleep(5 * soon)
	go func() { // what the link is tested with, after all
		for {
			f, err := readFrame(w, 100)
			if err != nil {
				return
			}
			_, _ = w.Write(frame{session: noSession, kind: linktestRsp, system: f.system}.append(nil))
		}
	}()
	for range sent {
		if p, open := <-c.Primaries(); !open {
			t.Fatal(c.Err())
		} else if !p.Is(6, 1) {
			t.Errorf("%v", p)
		}
	}
}

// FuzzFrames reads frames from anything. What is read travels as the same bytes.
func FuzzFrames(f *testing.F) {
	f.Add(frame{session: 3, byte2: 0x81, byte3: 1, system: 1, text: []byte{1, 0}}.append(nil))
	f.Add(frame{session: noSession, kind: separateReq}.append(nil))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			began := len(in) - r.Len()
			got, err := readFrame(r, 1<<16)
			if err != nil {
				return
			}
			if !bytes.Equal(got.append(nil), in[began:len(in)-r.Len()]) {
				t.Errorf("%x is read as %+v", in[began:], got)
			}
			if m, err := got.message(); err == nil {
				if _, err := frameOf(m, got.session, got.system); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// FuzzConn has a host read anything after the session is selected: it ends, and doesn't panic.
func FuzzConn(f *testing.F) {
	f.Add(frame{session: 3, byte2: 0x86, byte3: 11, system: 1, text: []byte{1, 0}}.append(nil))
	f.Add(frame{session: noSession, kind: linktestReq}.append(frame{byte2: 9, byte3: 5, text: append([]byte{0x21, 10}, make([]byte, 10)...)}.append(nil)))
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		c := newConn(near, Config{MaxBytes: 1 << 16}.orDefaults())
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			_, _ = far.Write(frame{session: noSession, kind: selectReq}.append(nil))
			_, _ = far.Write(in)
			_ = far.Close()
		}()
		for p := range c.Primaries() {
			_ = c.Reply(p, secs.B(0))
		}
		if c.Err() == nil {
			t.Error("it ended without a reason")
		}
	})
}

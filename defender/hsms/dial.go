package hsms

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Dialer connects to one passive entity, again and again if need be. It is for one goroutine.
type Dialer struct {
	Address string // host:port
	Config  Config

	last *time.Time // when the attempt before ended
}

// Dial connects and selects the session. It begins no earlier than T5 after the end of the
// attempt before.
func (d *Dialer) Dial(ctx context.Context) (*Conn, error) {
	config := d.Config.orDefaults()
	if d.last != nil {
		select {
		case <-time.After(time.Until(d.last.Add(config.Timers.Separation))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() {
		now := time.Now()
		d.last = &now
	}()

	connecting, cancel := context.WithTimeout(ctx, config.Timers.Separation)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(connecting, "tcp", d.Address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w: is the equipment's HSMS port passive and enabled?", d.Address, err)
	}
	c := newConn(raw, config)
	if err := c.selectSession(ctx); err != nil {
		c.end(err)
		<-c.ended
		return nil, fmt.Errorf("selecting the HSMS session at %s: %w", d.Address, err)
	}
	c.begin()
	return c, nil
}

// statuses says what the codes of a select.rsp mean.
var statuses = map[byte]string{
	1: "a session is selected already: is another host connected?",
	2: "the equipment is not ready: look at its HSMS settings",
	3: "the equipment takes no more connections: is another host connected?",
}

func (c *Conn) selectSession(ctx context.Context) error {
	answer, err := c.control(ctx, selectReq)
	if err != nil {
		return err
	}
	if status := answer.byte3; answer.kind != selectRsp || status != 0 {
		return fmt.Errorf("it was refused with status %d: %s", status, statuses[status])
	}
	return nil
}

// Accept takes a connection that another entity opened, and waits for T7 until it is
// selected. It closes the connection if that fails.
func Accept(ctx context.Context, raw net.Conn, config Config) (*Conn, error) {
	c := newConn(raw, config.orDefaults())
	timer := time.NewTimer(c.config.Timers.NotSelected)
	defer timer.Stop()
	var err error
	select {
	case <-c.selected:
		c.begin()
		return c, nil
	case <-c.ended:
		err = c.Err()
	case <-timer.C:
		err = fmt.Errorf("it was not selected within T7, %v", c.config.Timers.NotSelected)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.end(err)
	<-c.ended
	return nil, fmt.Errorf("accepting an HSMS connection: %w", err)
}

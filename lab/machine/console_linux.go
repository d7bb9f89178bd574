package machine

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// kept is how much of its console's end a machine keeps, as EC2 does.
const kept = 64 << 10

// console is a machine's terminal, whose output is kept.
type console struct {
	master *os.File
	slave  *os.File      // the machine's side. It stays open until the machine ends: systemd opens the terminal for each line
	done   chan struct{} // closed when nothing can be written to it any more

	mu   sync.Mutex
	text []byte
}

// newConsole makes a terminal. It has to be a real one: programs open /dev/console as such.
func newConsole() (*console, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("making a terminal: %w", err)
	}
	var slave *os.File
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, fmt.Errorf("making a terminal: %w", err)
	}
	return &console{master: master, slave: slave, done: make(chan struct{})}, nil
}

// hangUp closes the machine's side, once the machine has ended.
func (c *console) hangUp() { _ = c.slave.Close() }

// read keeps what is written until the machine has closed its side.
func (c *console) read() {
	defer close(c.done)
	b := make([]byte, 4096)
	for {
		n, err := c.master.Read(b)
		c.keep(b[:n])
		if err != nil { // EIO, once the other side is closed everywhere
			_ = c.master.Close()
			return
		}
	}
}

// keep adds to what is kept.
func (c *console) keep(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, b...)
	if more := len(c.text) - kept; more > 0 {
		c.text = append(c.text[:0], c.text[more:]...)
	}
}

// output returns what is kept.
func (c *console) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

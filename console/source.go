package console

import (
	"fmt"
	"sync"
	"time"
)

// Source is something that a console reads: servers, a store, another plane's records.
type Source struct {
	Name  string    `json:"name"`            // as "NATS"
	Away  time.Time `json:"away,omitzero"`   // since when it can't be read; zero: it can
	Error string    `json:"error,omitempty"` // why it can't
	Seen  time.Time `json:"seen,omitzero"`   // when it was last read
}

// Contact knows whether a source can be read. It is safe for concurrent use.
type Contact struct {
	name string
	now  func() time.Time

	mu   sync.Mutex
	away time.Time
	err  error
	seen time.Time
}

// NewContact returns the contact with a source of a name, which has not been read yet.
func NewContact(name string) *Contact { return &Contact{name: name, now: time.Now} }

// Note takes in how a reading ended, and returns its error, with the name of the source and since when it is away.
func (c *Contact) Note(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now().UTC()
	if err == nil {
		c.away, c.err, c.seen = time.Time{}, nil, now
		return nil
	}
	c.err = err
	if c.away.IsZero() {
		c.away = now
	}
	return fmt.Errorf("%s is away since %s: %w", c.name, c.away.Format("15:04:05 UTC"), err)
}

// Source returns what is known of the source.
func (c *Contact) Source() Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Source{Name: c.name, Away: c.away, Seen: c.seen}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}

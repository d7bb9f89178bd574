package awsapi

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes/sim"
)

// queue is one queue.
type queue struct {
	messages []*message
	arrived  chan struct{} // closed and renewed when a message is sent
	next     int
}

// message is a message until it is deleted.
type message struct {
	id, body  string
	receipt   string
	deliverAt time.Time // before which it is hidden
	received  int       // how often
}

// queues is SQS.
type queues struct {
	clock    sim.Clock
	pollUnit time.Duration // how long a second of long polling takes

	mu    sync.Mutex
	byURL map[string]*queue
}

func newQueues(clock sim.Clock, pollUnit time.Duration) *queues {
	return &queues{clock: clock, pollUnit: pollUnit, byURL: map[string]*queue{}}
}

// queue returns a queue, a new one if it was never named. The caller holds mu.
func (s *queues) queue(url string) *queue {
	q := s.byURL[url]
	if q == nil {
		q = &queue{arrived: make(chan struct{})}
		s.byURL[url] = q
	}
	return q
}

// send puts a message into a queue.
func (s *queues) send(queueURL, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(queueURL)
	q.next++
	q.messages = append(q.messages, &message{id: fmt.Sprintf("message-%d", q.next), body: body, deliverAt: s.clock.Now()})
	close(q.arrived)
	q.arrived = make(chan struct{})
}

// waiting returns how many messages a queue holds, those in flight included.
func (s *queues) waiting(queueURL string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue(queueURL).messages)
}

// receiveMessage polls long: it returns when there is a message or the time is over. A received message is hidden for its visibility
// time by the simulator's clock.
func (s *queues) receiveMessage(r *request) (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Max      int    `json:"MaxNumberOfMessages"`
		Wait     int    `json:"WaitTimeSeconds"`
		Hidden   *int   `json:"VisibilityTimeout"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, refused("InvalidParameterValue", "%v", err)
	}
	if in.Wait < 0 || in.Wait > 20 || in.Max < 0 || in.Max > 10 {
		return nil, refused("InvalidParameterValue", "WaitTimeSeconds is 0 to 20, MaxNumberOfMessages 1 to 10")
	}
	hidden := 30
	if in.Hidden != nil {
		hidden = *in.Hidden
	}
	over := time.NewTimer(time.Duration(in.Wait) * s.pollUnit)
	defer over.Stop()
	for {
		out, arrived := s.take(in.QueueURL, max(in.Max, 1), time.Duration(hidden)*time.Second)
		if len(out) > 0 {
			return map[string]any{"Messages": out}, nil
		}
		select {
		case <-arrived:
		case <-over.C:
			return map[string]any{}, nil
		case <-r.ctx.Done():
			return nil, r.ctx.Err()
		}
	}
}

// take receives messages for a while; without any it says how to wait for the next.
func (s *queues) take(url string, most int, hidden time.Duration) (out []map[string]string, arrived <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(url)
	now := s.clock.Now()
	for _, m := range q.messages {
		if len(out) == most || now.Before(m.deliverAt) {
			continue
		}
		m.received++
		m.receipt = fmt.Sprintf("%s/%d", m.id, m.received)
		m.deliverAt = now.Add(hidden)
		sum := md5.Sum([]byte(m.body)) // what the protocol's checksum is
		out = append(out, map[string]string{"MessageId": m.id, "ReceiptHandle": m.receipt, "Body": m.body, "MD5OfBody": hex.EncodeToString(sum[:])})
	}
	return out, q.arrived
}

// deleteMessage deletes by any receipt of a message; one that is gone is no error.
func (s *queues) deleteMessage(r *request) (any, error) {
	id, _, _ := strings.Cut(r.get("ReceiptHandle"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(r.get("QueueUrl"))
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.id == id })
	return map[string]any{}, nil
}

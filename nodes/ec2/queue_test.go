package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

const queueURL = "https://sqs.local.amazonaws.com/123456789012/muster"

// polling is a Queue at work on a simulated SQS queue.
type polling struct {
	*region
	stop func()
	log  *output.Buffer
}

func startPolling(t *testing.T, handle func(context.Context, nodes.InterruptionEvent) error) *polling {
	t.Helper()
	p := &polling{region: open(t, func(s *setup) { s.api.PollUnit = 10 * time.Millisecond }), log: &output.Buffer{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	q := &ec2.Queue{
		API: p.sqs, URL: queueURL, Handle: handle, Clock: p.w.Clock(), Retry: time.Second,
		Log: slog.New(slog.NewTextHandler(p.log, nil)),
	}
	go func() { done <- q.Run(ctx) }()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(p.stop)
	return p
}

// await waits until SQS has been asked to delete n messages.
func (p *polling) deleted(t *testing.T, n int) {
	t.Helper()
	arrived := make(chan struct{}, 1000)
	p.api.OnCall(func(c awsapi.Call) {
		if c.Action == "DeleteMessage" {
			arrived <- struct{}{}
		}
	})
	for p.count("DeleteMessage") < n {
		<-arrived
	}
}

func (p *polling) event(id string, kind nodes.InterruptionKind, age time.Duration) string {
	return awsapi.Event(nodes.InterruptionEvent{ID: id, Kind: kind, InstanceID: "i-001", At: p.w.Clock().Now().Add(-age).Truncate(time.Second)})
}

func TestSeveralEventsAreWorkedOnAtATime(t *testing.T) {
	const n = 15
	var meet sync.WaitGroup
	meet.Add(n)
	p := startPolling(t, func(context.Context, nodes.InterruptionEvent) error {
		meet.Done()
		meet.Wait() // none returns before all are there
		return nil
	})
	for i := range n {
		p.api.Send(queueURL, p.event(fmt.Sprint("e", i), nodes.Warning, 0))
	}
	p.deleted(t, n)
}

func TestAMessageIsDeletedOnlyAfterItsEventIsNoted(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := startPolling(t, func(context.Context, nodes.InterruptionEvent) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	p.api.Send(queueURL, p.event("e", nodes.Warning, 0))
	<-entered
	if p.count("DeleteMessage") != 0 {
		t.Error("deleted while its event was worked on")
	}
	close(leave)
	p.deleted(t, 1)
}

func TestAnEventThatCanNotBeNotedIsTriedAgainWithoutWaitingForItsRedelivery(t *testing.T) {
	tries := 0
	p := startPolling(t, func(context.Context, nodes.InterruptionEvent) error {
		if tries++; tries < 4 {
			return errors.New("the table is unreachable")
		}
		return nil
	})
	p.api.Send(queueURL, p.event("e", nodes.Warning, 0))
	p.deleted(t, 1)
	if p.stop(); tries != 4 {
		t.Errorf("%d tries", tries)
	}
}

func TestOldUnknownAndNeverNotedEventsAreDroppedWithALine(t *testing.T) {
	p := startPolling(t, func(_ context.Context, e nodes.InterruptionEvent) error {
		if e.ID != "hopeless" {
			t.Errorf("handled %+v", e)
		}
		return errors.New("the table is unreachable")
	})
	p.api.Send(queueURL, p.event("old", nodes.Warning, 3*time.Minute))
	p.api.Send(queueURL, `{"id":"other","detail-type":"Scheduled Event","source":"aws.events","time":"2024-10-27T04:10:00Z","detail":{}}`)
	p.api.Send(queueURL, p.event("hopeless", nodes.Warning, 110*time.Second))
	p.deleted(t, 3)
	p.stop()
	for _, want := range []string{"event dropped: it is too old\" event=old", "event refused", "event dropped: it is too old\" event=hopeless", "event could not be handled"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("no %q in\n%s", want, p.log)
		}
	}
}

func TestWhatCanNotBeReadIsLeftToTheDeadLetterQueue(t *testing.T) {
	handled := make(chan string, 1)
	p := startPolling(t, func(_ context.Context, e nodes.InterruptionEvent) error {
		handled <- e.ID
		return nil
	})
	p.api.Send(queueURL, `{"trap":`)
	p.api.Send(queueURL, p.event("after", nodes.Rebalance, 0))
	p.deleted(t, 1)
	p.stop()
	if id := <-handled; id != "after" || p.api.Waiting(queueURL) != 1 || !strings.Contains(p.log.String(), "body can't be read") {
		t.Errorf("%s, %d waiting\n%s", id, p.api.Waiting(queueURL), p.log)
	}
}

func TestAQueueThatCanNotBeReadIsTriedAgain(t *testing.T) {
	handled := make(chan string, 1)
	p := startPolling(t, func(_ context.Context, e nodes.InterruptionEvent) error {
		handled <- e.ID
		return nil
	})
	p.api.Fault(awsapi.Fault{Action: "ReceiveMessage", Code: "AccessDeniedException", Times: 3})
	p.api.Send(queueURL, p.event("e", nodes.Warning, 0))
	p.deleted(t, 1)
	if id := <-handled; id != "e" {
		t.Error(id)
	}
}

func TestStoppingLetsHandlersFinish(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := startPolling(t, func(ctx context.Context, _ nodes.InterruptionEvent) error {
		close(entered)
		<-leave
		return ctx.Err()
	})
	p.api.Send(queueURL, p.event("e", nodes.Warning, 0))
	<-entered
	stopped := make(chan struct{})
	go func() { p.stop(); close(stopped) }()
	close(leave)
	<-stopped
	if p.api.Waiting(queueURL) != 0 {
		t.Error("its message is still there")
	}
}

func TestAMessageThatComesAgainWhileItIsWorkedOnIsWorkedOnOnce(t *testing.T) {
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	p := startPolling(t, func(context.Context, nodes.InterruptionEvent) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	p.api.Send(queueURL, p.event("e", nodes.Warning, 0))
	<-entered
	polls := p.count("ReceiveMessage")
	p.w.Advance(40 * time.Second) // its visibility time is over
	for p.count("ReceiveMessage") < polls+2 {
		again := make(chan struct{}, 100)
		p.api.OnCall(func(awsapi.Call) { again <- struct{}{} })
		<-again
	}
	close(leave)
	p.deleted(t, 1)
	p.stop()
	if len(entered) != 0 || p.api.Waiting(queueURL) != 0 {
		t.Errorf("worked on %d times more, %d waiting", len(entered), p.api.Waiting(queueURL))
	}
}

func TestAQueueSaysWhatItLacks(t *testing.T) {
	if err := (&ec2.Queue{}).Run(t.Context()); err == nil {
		t.Error("it ran")
	}
}

package ec2

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2/event"
)

// SQS is what a Queue needs of SQS; *sqs.Client has it.
type SQS interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
}

// Queue polls interruption events from an SQS queue. Events are worked on side by side, since one can take its whole two minutes. A
// message is deleted when its events have been handled without an error, which means that they are of no concern or durably noted;
// one that is not read or not handled is left to the queue's redrive policy.
type Queue struct {
	API    SQS
	URL    string
	Handle func(context.Context, nodes.InterruptionEvent) error // Reconciler.Interrupt

	Clock  nodes.Clock   // nil: SystemClock
	Log    *slog.Logger  // nil: slog's default
	Most   int           // messages worked on at a time; 0: 20
	Wait   time.Duration // of one long poll, whole seconds up to 20; 0: 20 s
	Retry  time.Duration // pause after a failure; 0: 2 s
	Finish time.Duration // how long Run lets handlers go on after ctx has ended; 0: 20 s
}

// hidden is for how many seconds a message that was received is not given to others. It is much shorter than a warning lasts, so
// that another process soon takes up what a crashed one left; that a message which is being worked on comes again is noticed.
const hidden = 30

// Run polls until ctx ends, then lets handlers finish, and returns nil. It does not give up on errors: a queue that can't be read now
// is tried again.
func (q *Queue) Run(ctx context.Context) error {
	if q.API == nil || q.URL == "" || q.Handle == nil {
		return errors.New("a Queue needs API, URL and Handle")
	}
	r := q.start(ctx)
	defer r.stop()
	for ctx.Err() == nil {
		room, ok := r.acquire(ctx)
		if !ok {
			break
		}
		messages, err := r.receive(ctx, room)
		for range room - len(messages) {
			<-r.slots
		}
		for _, m := range messages {
			r.begin(m)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Error("polling interruptions failed; trying again", "queue", q.URL, "error", explained(err))
			_ = r.clock.Sleep(ctx, r.retry) // ctx ends the loop
		}
	}
	return nil
}

// poll is a Queue at work.
type poll struct {
	*Queue
	clock  nodes.Clock
	log    *slog.Logger
	wait   int32
	retry  time.Duration
	finish time.Duration
	slots  chan struct{}
	work   context.Context // of handlers; outlives the polling
	cancel context.CancelFunc
	worker Worker
	group  sync.WaitGroup

	mu     sync.Mutex
	active map[string]string // newest receipt by message that is worked on
}

func (q *Queue) start(ctx context.Context) *poll {
	or := func(d, otherwise time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return otherwise
	}
	most := q.Most
	if most <= 0 {
		most = 20
	}
	r := &poll{
		Queue: q, clock: q.Clock, log: q.Log, wait: int32(min(or(q.Wait, 20*time.Second), 20*time.Second) / time.Second),
		retry: or(q.Retry, 2*time.Second), finish: or(q.Finish, 20*time.Second), slots: make(chan struct{}, most), active: map[string]string{},
	}
	if r.clock == nil {
		r.clock = nodes.SystemClock{}
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	r.worker = Worker{Handle: q.Handle, Clock: r.clock, Log: r.log, Retry: r.retry}
	r.work, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// stop waits for handlers, and ends them when their time is over.
func (r *poll) stop() {
	timer := time.AfterFunc(r.finish, r.cancel)
	defer timer.Stop()
	r.group.Wait()
	r.cancel()
}

// acquire waits for a free slot and takes what else is free, as many as one request can fill.
func (r *poll) acquire(ctx context.Context) (int, bool) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, false
	}
	for n := 1; ; n++ {
		if n == 10 {
			return n, true
		}
		select {
		case r.slots <- struct{}{}:
		default:
			return n, true
		}
	}
}

func (r *poll) receive(ctx context.Context, most int) ([]types.Message, error) {
	out, err := r.API.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &r.URL, MaxNumberOfMessages: int32(most), WaitTimeSeconds: r.wait, VisibilityTimeout: hidden,
	})
	if err != nil {
		return nil, err
	}
	return out.Messages[:min(len(out.Messages), most)], nil
}

// begin works on a message in its own goroutine, which gives the slot back.
func (r *poll) begin(m types.Message) {
	id := aws.ToString(m.MessageId)
	r.mu.Lock()
	_, working := r.active[id]
	r.active[id] = aws.ToString(m.ReceiptHandle) // an older receipt may no longer delete
	r.mu.Unlock()
	if working {
		<-r.slots
		return
	}
	r.group.Go(func() {
		defer func() { <-r.slots }()
		done := r.handle(id, aws.ToString(m.Body))
		r.mu.Lock()
		receipt := r.active[id]
		delete(r.active, id)
		r.mu.Unlock()
		if done {
			r.delete(id, receipt)
		}
	})
}

// handle works on the events of a message and reports whether it may be deleted.
func (r *poll) handle(id, body string) bool {
	events, err := event.Parse([]byte(body))
	if err != nil {
		var unknown *event.UnknownError
		if errors.As(err, &unknown) {
			r.log.Warn("event refused", "message", id, "error", err)
			return true
		}
		r.log.Error("message can't be read; it is left to the queue's dead-letter queue", "message", id, "error", err)
		return false
	}
	done := true
	for _, e := range events {
		done = r.worker.Work(r.work, e) == nil && done
	}
	return done
}

func (r *poll) delete(id, receipt string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), 10*time.Second)
	defer cancel()
	if _, err := r.API.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &r.URL, ReceiptHandle: &receipt}); err != nil {
		// It comes again, and finds its interruption noted.
		r.log.Error("message could not be deleted", "message", id, "error", explained(err))
	}
}

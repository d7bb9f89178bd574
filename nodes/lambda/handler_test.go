package lambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/lambda"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/setting"
)

const scheduled = `{"version":"0","id":"53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa","detail-type":"Scheduled Event","source":"aws.events","account":"123456789012","time":"2024-10-27T04:00:00Z","region":"us-east-1","resources":["arn:aws:events:us-east-1:123456789012:rule/muster"],"detail":{}}`

// plane notes what it is asked for.
type plane struct {
	mu        sync.Mutex
	ticks     int
	handled   []nodes.InterruptionEvent
	deadline  time.Time
	report    nodes.Report
	err       error
	interrupt func(context.Context, nodes.InterruptionEvent) error
}

func (p *plane) Tick(ctx context.Context) (nodes.Report, error) {
	p.ticks++
	p.deadline, _ = ctx.Deadline()
	return p.report, p.err
}

func (p *plane) Interrupt(ctx context.Context, e nodes.InterruptionEvent) error {
	p.mu.Lock()
	p.handled = append(p.handled, e)
	p.mu.Unlock()
	if p.interrupt != nil {
		return p.interrupt(ctx, e)
	}
	return nil
}

// fixture is a Handler over a plane, on the time of a simulator.
type fixture struct {
	*lambda.Handler
	plane *plane
	clock sim.Clock
	log   *bytes.Buffer
	opens int
}

func handler(f lambda.Function) *fixture {
	x := &fixture{plane: &plane{}, clock: sim.New(sim.Options{Policy: nodes.DefaultPolicy()}).Clock(), log: &bytes.Buffer{}}
	x.Handler = lambda.New(lambda.Config{Function: f, Margin: 5 * time.Second, Clock: x.clock, Log: slog.New(slog.NewTextHandler(x.log, nil))},
		func(context.Context) (lambda.Plane, error) { x.opens++; return x.plane, nil })
	return x
}

func (x *fixture) event(id string, kind nodes.InterruptionKind) string {
	now := x.clock.Now().Truncate(time.Second)
	e := nodes.InterruptionEvent{ID: id, Kind: kind, InstanceID: "i-001", At: now}
	switch kind {
	case nodes.Health:
		e.Start = now.Add(time.Hour)
	case nodes.StateChange:
		e.State = nodes.StateStopped
	}
	return awsapi.Event(e)
}

func batch(bodies ...string) string {
	var e events.SQSEvent
	for i, b := range bodies {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprintf("m%d", i), EventSource: "aws:sqs", Body: b})
	}
	out, _ := json.Marshal(e)
	return string(out)
}

func TestAScheduledEventTicks(t *testing.T) {
	for _, source := range []string{"aws.events", "aws.scheduler"} {
		x := handler(lambda.Both)
		x.plane.report = nodes.Report{Tick: "t1", Decision: &nodes.Decision{Action: nodes.ScaleUp, Reason: "pending"}, Events: []nodes.Event{{Kind: "scaleUp.begun", Message: "K3S_TOKEN=hunter2"}}}
		out, err := x.Invoke(t.Context(), []byte(strings.Replace(scheduled, "aws.events", source, 1)))
		if err != nil || x.plane.ticks != 1 || !strings.Contains(string(out), `"tick":"t1","action":"SCALE_UP","reason":"pending"`) {
			t.Errorf("%s, %v, %d ticks", out, err, x.plane.ticks)
		}
		if !strings.Contains(x.log.String(), "scaleUp.begun") || strings.Contains(x.log.String(), "hunter2") {
			t.Errorf("%s", x.log)
		}
	}
}

func TestAFailedTickFailsTheInvocation(t *testing.T) {
	x := handler(lambda.Tick)
	x.plane.err = errors.New("reading metrics, password=hunter2 refused")
	if _, err := x.Invoke(t.Context(), []byte(scheduled)); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestWorkEndsBeforeTheFunctionsTime(t *testing.T) {
	x := handler(lambda.Tick)
	end := x.clock.Now().Add(time.Minute)
	ctx, cancel := x.clock.WithDeadline(t.Context(), end)
	defer cancel()
	if _, err := x.Invoke(ctx, []byte(scheduled)); err != nil || !x.plane.deadline.Equal(end.Add(-5*time.Second)) {
		t.Errorf("%v, deadline %v", err, x.plane.deadline)
	}
}

func TestEveryKindOfInterruptionIsHandled(t *testing.T) {
	for _, kind := range []nodes.InterruptionKind{nodes.Warning, nodes.Rebalance, nodes.Health, nodes.StateChange} {
		x := handler(lambda.Interruptions)
		_, err := x.Invoke(t.Context(), []byte(x.event("e", kind)))
		if err != nil || len(x.plane.handled) != 1 || x.plane.handled[0].Kind != kind || x.plane.ticks != 0 {
			t.Errorf("%s: %v, %+v", kind, err, x.plane.handled)
		}
		out, err := x.Invoke(t.Context(), []byte(batch(x.event("f", kind))))
		if err != nil || len(x.plane.handled) != 2 || string(out) != `{"batchItemFailures":[]}` || x.opens != 1 {
			t.Errorf("%s by SQS: %s, %v, %+v, opened %d times", kind, out, err, x.plane.handled, x.opens)
		}
	}
}

func TestSeveralInterruptionsAreWorkedOnAtATime(t *testing.T) {
	x := handler(lambda.Both)
	var meet sync.WaitGroup
	meet.Add(10)
	x.plane.interrupt = func(context.Context, nodes.InterruptionEvent) error {
		meet.Done()
		meet.Wait()
		return nil
	}
	var bodies []string
	for i := range 10 {
		bodies = append(bodies, x.event(fmt.Sprint(i), nodes.Warning))
	}
	if _, err := x.Invoke(t.Context(), []byte(batch(bodies...))); err != nil {
		t.Error(err)
	}
}

func TestABatchNamesWhatHasToComeAgain(t *testing.T) {
	x := handler(lambda.Interruptions)
	x.plane.interrupt = func(_ context.Context, e nodes.InterruptionEvent) error {
		if e.ID == "bad" {
			return errors.New("the table is unreachable")
		}
		return nil
	}
	out, err := x.Invoke(t.Context(), []byte(batch(x.event("good", nodes.Warning), x.event("bad", nodes.Health), `{"trap":`, `{"id":"1","detail-type":"My Event","source":"me"}`)))
	if want := `{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"m2"}]}`; err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := x.Invoke(t.Context(), []byte(batch(x.event("bad", nodes.Health)))); err == nil {
		t.Error("a batch of which nothing was handled succeeded")
	}
}

func TestAWarningThatCanNotBeNotedIsTriedAgainUntilItIsTooOld(t *testing.T) {
	x := handler(lambda.Both)
	tries := 0
	x.plane.interrupt = func(context.Context, nodes.InterruptionEvent) error {
		tries++
		return errors.New("the table is unreachable")
	}
	if _, err := x.Invoke(t.Context(), []byte(x.event("e", nodes.Warning))); err != nil || tries != 61 || !strings.Contains(x.log.String(), "too old") {
		t.Errorf("%d tries, %v", tries, err)
	}
	tries = 0
	ctx, cancel := x.clock.WithDeadline(t.Context(), x.clock.Now().Add(25*time.Second))
	defer cancel()
	if _, err := x.Invoke(ctx, []byte(x.event("f", nodes.Warning))); err == nil || tries != 10 {
		t.Errorf("with 20 s for it: %d tries, %v", tries, err)
	}
}

func TestEventsOfAnotherFunctionAndOfNobodyAreRefused(t *testing.T) {
	warning := handler(lambda.Both).event("e", nodes.Warning)
	for _, c := range []struct {
		f          lambda.Function
		event, why string
	}{
		{lambda.Interruptions, scheduled, "MUSTER_FUNCTION=interruptions"},
		{lambda.Tick, warning, "MUSTER_FUNCTION=tick"},
		{lambda.Both, `{"id":"1","detail-type":"Object Created","source":"aws.s3","time":"2024-10-27T04:10:00Z","detail":{}}`, "no interruption"},
		{lambda.Both, strings.Replace(scheduled, "aws.events", "my.own", 1), "no interruption"},
		{lambda.Both, `{}`, "detail-type is missing"},
		{lambda.Both, `"test"`, "can't be read"},
		{lambda.Both, ``, "can't be read"},
		{lambda.Both, `{"Records":[{"eventSource":"aws:s3","messageId":"m"}]}`, "aws:s3"},
		{lambda.Both, `{"Records":[7]}`, "can't be read"},
		{lambda.Both, strings.Replace(warning, "i-001", "../..", 2), "detail.instance-id"},
	} {
		x := handler(c.f)
		_, err := x.Invoke(t.Context(), []byte(c.event))
		if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(x.log.String(), "event refused") || x.opens != 0 {
			t.Errorf("%.80s: %v\n%s", c.event, err, x.log)
		}
	}
}

func TestWhatHealthCalledOffIsOfNoConcern(t *testing.T) {
	x := handler(lambda.Both)
	closed := strings.Replace(x.event("e", nodes.Health), "upcoming", "closed", 1)
	if _, err := x.Invoke(t.Context(), []byte(closed)); err != nil || len(x.plane.handled) != 0 || !strings.Contains(x.log.String(), "no concern") {
		t.Errorf("%v\n%s", err, x.log)
	}
}

func TestAPlaneThatCanNotBeOpenedIsTriedAgain(t *testing.T) {
	p, fail := &plane{}, true
	h := lambda.New(lambda.Config{Function: lambda.Both, Log: slog.New(slog.DiscardHandler)}, func(context.Context) (lambda.Plane, error) {
		if fail {
			return nil, errors.New("no region")
		}
		return p, nil
	})
	if _, err := h.Invoke(t.Context(), []byte(scheduled)); err == nil {
		t.Error("it ticked")
	}
	fail = false
	if _, err := h.Invoke(t.Context(), []byte(scheduled)); err != nil || p.ticks != 1 {
		t.Error(err)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	_, err := lambda.ConfigFromEnv(func(name string) (string, bool) {
		v, ok := map[string]string{"MUSTER_FUNCTION": "all", "LAMBDA_MARGIN_SEC": "0"}[name]
		return v, ok
	})
	var all *setting.Error
	if !errors.As(err, &all) || len(all.Problems) != 2 {
		t.Error(err)
	}
	if c, err := lambda.ConfigFromEnv(func(string) (string, bool) { return "", false }); err != nil || c.Function != lambda.Both || c.Margin != 5*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
}

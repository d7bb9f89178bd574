package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// ingest has a collector take a run that a publisher sends as a request.
func (c *court) ingest(group partition.Config, chamber defender.Chamber) {
	c.t.Helper()
	conn := c.as(role.Collector)
	collector, err := collect.New(c.store, conn)
	if err != nil {
		c.t.Fatal(err)
	}
	collector.For(group)

	// A GEM host tells equipment of its alarms.
	alarms, err := conn.Subscribe(defender.AlarmSubjects(">")[0], func(*nats.Msg) {})
	c.ok(role.Collector, "following alarms", err)
	defer func() { _ = alarms.Unsubscribe() }()

	ctx, leave := context.WithCancel(context.Background())
	served := make(chan error, 1)
	taking := ingest.New(ingest.Config{Store: c.store, Publisher: ingest.Through(collector)})
	go func() { served <- taking.Serve(ctx, conn) }()

	parameters := url.Values{"chamber": {chamber.String()}, "run": {"ingested"}, "recipe": {"etch"}, "time-column": {"t"}, "step-column": {"step"},
		"start": {time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)}}
	run := &nats.Msg{Subject: ingest.Subject, Data: []byte("t,step,power\n0,1,300\n1,1,301\n2,1,299\n"),
		Header: nats.Header{ingest.ParametersHeader: {parameters.Encode()}, ingest.FormatHeader: {"text/csv"}}}
	publisher := c.as(role.Publisher)
	var answer *nats.Msg
	c.eventually("a run taken", func() bool {
		answer, err = publisher.RequestMsg(run, 5*time.Second)
		return !errors.Is(err, nats.ErrNoResponders)
	})
	if err == nil && answer.Header.Get(ingest.StatusHeader) != strconv.Itoa(http.StatusCreated) {
		err = fmt.Errorf("the answer is %q %s", answer.Header, answer.Data)
	}
	c.ok(role.Publisher, "sending a run", err)
	leave()
	c.ok(role.Collector, "taking runs", <-served)
}

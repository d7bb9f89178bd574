package event_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2/event"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// The events' shapes are AWS's own examples, with other IDs:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const (
	warningEvent = `{"version":"0","id":"12345678-1234-1234-1234-123456789012","detail-type":"EC2 Spot Instance Interruption Warning","source":"aws.ec2","account":"123456789012","time":"2024-10-27T04:10:00Z","region":"us-east-2","resources":["arn:aws:ec2:us-east-2a:instance/i-0b662ef9931388ba0"],"detail":{"instance-id":"i-0b662ef9931388ba0","instance-action":"terminate"}}`
	rebalanceEvt = `{"version":"0","id":"r","detail-type":"EC2 Instance Rebalance Recommendation","source":"aws.ec2","account":"123456789012","time":"2024-10-27T04:10:00Z","region":"us-east-1","resources":["arn:aws:ec2:us-east-1:123456789012:instance/i-0b662ef9931388ba0"],"detail":{"instance-id":"i-0b662ef9931388ba0"}}`
	stateEvent   = `{"version":"0","id":"s","detail-type":"EC2 Instance State-change Notification","source":"aws.ec2","account":"123456789012","time":"2024-10-27T04:10:00Z","region":"us-east-1","resources":["arn:aws:ec2:us-east-1:123456789012:instance/i-0b662ef9931388ba0"],"detail":{"instance-id":"i-0b662ef9931388ba0","state":"stopping"}}`
	healthEvt    = `{"version":"0","id":"h","detail-type":"AWS Health Event","source":"aws.health","account":"123456789012","time":"2024-10-27T04:10:00Z","region":"us-west-2","resources":["i-0b662ef9931388ba0","i-1c662ef9931388ba1"],"detail":{"eventArn":"arn:aws:health:us-west-2::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/1","service":"EC2","eventTypeCode":"AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED","eventTypeCategory":"scheduledChange","eventScopeCode":"ACCOUNT_SPECIFIC","communicationId":"1","startTime":"Sat, 09 Nov 2024 15:10:09 GMT","endTime":"Sat, 09 Nov 2024 16:10:09 GMT","lastUpdatedTime":"Sun, 27 Oct 2024 04:10:00 GMT","statusCode":"upcoming","eventRegion":"us-west-2","eventDescription":[{"language":"en_US","latestDescription":"A description of the event"}],"affectedEntities":[{"entityValue":"i-0b662ef9931388ba0","status":"PENDING"},{"entityValue":"i-1c662ef9931388ba1"}],"affectedAccount":"123456789012","page":"1","totalPages":"1"}}`
)

func TestTheFourKindsOfEventsAreRead(t *testing.T) {
	at := time.Date(2024, 10, 27, 4, 10, 0, 0, time.UTC)
	start := time.Date(2024, 11, 9, 15, 10, 9, 0, time.UTC)
	const id = "i-0b662ef9931388ba0"
	for body, want := range map[string][]nodes.InterruptionEvent{
		warningEvent: {{ID: "12345678-1234-1234-1234-123456789012", Kind: nodes.Warning, InstanceID: id, At: at}},
		rebalanceEvt: {{ID: "r", Kind: nodes.Rebalance, InstanceID: id, At: at}},
		stateEvent:   {{ID: "s", Kind: nodes.StateChange, InstanceID: id, At: at, State: nodes.StateStopping}},
		healthEvt:    {{ID: "h#0", Kind: nodes.Health, InstanceID: id, At: at, Start: start}, {ID: "h#1", Kind: nodes.Health, InstanceID: "i-1c662ef9931388ba1", At: at, Start: start}},
		strings.Replace(healthEvt, `"status":"PENDING"`, `"status":"RESOLVED"`, 1): {{ID: "h#1", Kind: nodes.Health, InstanceID: "i-1c662ef9931388ba1", At: at, Start: start}},
	} {
		got, err := event.Parse([]byte(body))
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v, %v", body, got, err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("got  %+v\nwant %+v", got[i], want[i])
			}
		}
	}
}

func TestTheSimulatedRegionsEventsAreReadAsTheyWere(t *testing.T) {
	for _, e := range []nodes.InterruptionEvent{
		{ID: "1", Kind: nodes.Warning, InstanceID: "i-001", At: time.Unix(1730000000, 0).UTC()},
		{ID: "2", Kind: nodes.Rebalance, InstanceID: "i-001", At: time.Unix(1730000000, 0).UTC()},
		{ID: "3", Kind: nodes.StateChange, InstanceID: "i-001", At: time.Unix(1730000000, 0).UTC(), State: nodes.StateTerminated},
		{ID: "4", Kind: nodes.Health, InstanceID: "i-001", At: time.Unix(1730000000, 0).UTC(), Start: time.Unix(1731000000, 0).UTC()},
	} {
		if got, err := event.Parse([]byte(awsapi.Event(e))); err != nil || len(got) != 1 || got[0] != e {
			t.Errorf("%+v became %+v, %v", e, got, err)
		}
	}
}

func TestHostileEventsAreRefusedWithTheFieldNamed(t *testing.T) {
	change := func(body, from, to string) string {
		if !strings.Contains(body, from) {
			t.Fatalf("%s has no %s", body, from)
		}
		return strings.Replace(body, from, to, 1)
	}
	for body, field := range map[string]string{
		"":                    "body",
		"null":                "detail-type",
		"[]":                  "body",
		`"event"`:             "body",
		`{"detail-type":5}`:   "detail-type",
		warningEvent[:200]:    "body",
		warningEvent + "trap": "body",
		change(warningEvent, "EC2 Spot Instance Interruption Warning", ""):                                                          "detail-type",
		change(warningEvent, "12345678-1234-1234-1234-123456789012", ""):                                                            "id",
		change(warningEvent, "aws.ec2", "my.own"):                                                                                   "source",
		change(healthEvt, "aws.health", "aws.ec2"):                                                                                  "source",
		change(warningEvent, "2024-10-27T04:10:00Z", "yesterday"):                                                                   "time",
		change(warningEvent, `"time":"2024-10-27T04:10:00Z",`, ""):                                                                  "time",
		change(warningEvent, `"instance-id":"i-0b662ef9931388ba0"`, `"instance-id":""`):                                             "detail.instance-id",
		change(warningEvent, `"instance-id":"i-0b662ef9931388ba0"`, `"instance-id":7`):                                              "detail.instance-id",
		change(warningEvent, `"instance-id":"i-0b662ef9931388ba0"`, `"instance-id":"i-0b662ef9931388ba0,i-1"`):                      "detail.instance-id",
		change(warningEvent, `{"instance-id":"i-0b662ef9931388ba0","instance-action":"terminate"}`, `[]`):                           "detail",
		change(stateEvent, "stopping", "on fire"):                                                                                   "detail.state",
		change(healthEvt, "Sat, 09 Nov 2024 15:10:09 GMT", "soon"):                                                                  "detail.startTime",
		change(healthEvt, `"i-1c662ef9931388ba1"}`, `"vol-1"}`):                                                                     "detail.affectedEntities[1].entityValue",
		change(healthEvt, `[{"entityValue":"i-0b662ef9931388ba0","status":"PENDING"},{"entityValue":"i-1c662ef9931388ba1"}]`, "[]"): "detail.affectedEntities",
		`{"detail-type":"` + strings.Repeat("x", 300<<10) + `"}`:                                                                    "body",
	} {
		got, err := event.Parse([]byte(body))
		var e *event.FieldError
		if !errors.As(err, &e) || e.Field != field || got != nil || len(err.Error()) > 300 {
			t.Errorf("%.300s\n  gave %v, %v; want an error of %s", body, got, err, field)
		}
	}
}

func TestEventsOfNoConcernAreToldFromMalformedOnes(t *testing.T) {
	for _, body := range []string{
		`{"id":"1","detail-type":"Scheduled Event","source":"aws.events","time":"2024-10-27T04:10:00Z","detail":{}}`,
		strings.Replace(healthEvt, `"scheduledChange"`, `"issue"`, 1),
		strings.Replace(healthEvt, `"service":"EC2"`, `"service":"RDS"`, 1),
		strings.Replace(healthEvt, `"upcoming"`, `"closed"`, 1),
	} {
		_, err := event.Parse([]byte(body))
		var e *event.UnknownError
		if !errors.As(err, &e) {
			t.Errorf("%.200s gave %v", body, err)
		}
	}
}

func TestAnEventIsStaleAfterTwoMinutesUnlessItAnnouncesWhatIsToCome(t *testing.T) {
	now := time.Unix(1730000000, 0)
	for _, c := range []struct {
		e    nodes.InterruptionEvent
		want bool
	}{
		{nodes.InterruptionEvent{Kind: nodes.Warning, At: now.Add(-120 * time.Second)}, false},
		{nodes.InterruptionEvent{Kind: nodes.Warning, At: now.Add(-121 * time.Second)}, true},
		{nodes.InterruptionEvent{Kind: nodes.Rebalance, At: now.Add(-3 * time.Minute)}, true},
		{nodes.InterruptionEvent{Kind: nodes.Health, At: now.Add(-time.Hour), Start: now.Add(time.Hour)}, false},
		{nodes.InterruptionEvent{Kind: nodes.Health, At: now.Add(-time.Hour), Start: now.Add(-time.Minute)}, true},
	} {
		if got := event.Stale(c.e, now); got != c.want {
			t.Errorf("%+v: %t", c.e, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{warningEvent, rebalanceEvt, stateEvent, healthEvt, "{}", "null"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := event.Parse(b)
		if (err == nil) != (len(events) > 0) {
			t.Fatalf("%d events, %v", len(events), err)
		}
		var field *event.FieldError
		var unknown *event.UnknownError
		if err != nil && !errors.As(err, &field) && !errors.As(err, &unknown) {
			t.Fatalf("an error of no known kind: %v", err)
		}
		for _, e := range events {
			if !strings.HasPrefix(e.InstanceID, "i-") || len(e.InstanceID) > 19 || e.ID == "" || e.At.IsZero() || e.Kind == "" || (e.Kind == nodes.Health) == e.Start.IsZero() {
				t.Fatalf("%+v", e)
			}
		}
	})
}

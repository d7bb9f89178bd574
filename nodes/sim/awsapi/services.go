package awsapi

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// ---- STS

type getCallerIdentityResponse struct {
	XMLName   xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ GetCallerIdentityResponse"`
	ARN       string   `xml:"GetCallerIdentityResult>Arn"`
	UserID    string   `xml:"GetCallerIdentityResult>UserId"`
	Account   string   `xml:"GetCallerIdentityResult>Account"`
	RequestID string   `xml:"ResponseMetadata>RequestId"`
}

func (a *API) getCallerIdentity(*request) (any, error) {
	return getCallerIdentityResponse{ARN: "arn:aws:sts::" + account + ":assumed-role/muster/test", UserID: "AROATEST:test", Account: account, RequestID: "simulated"}, nil
}

// ---- SSM and Secrets Manager

func (a *API) getParameter(r *request) (any, error) {
	name := r.get("Name")
	value, ok := a.o.Parameters[name]
	if !ok {
		return nil, refused("ParameterNotFound", "")
	}
	bare, _, _ := strings.Cut(name, ":")
	return map[string]any{"Parameter": map[string]any{"Name": bare, "Type": "SecureString", "Value": value, "Version": 1}}, nil
}

func (a *API) getSecretValue(r *request) (any, error) {
	name := r.get("SecretId")
	value, ok := a.o.Secrets[name]
	if !ok {
		return nil, refused("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	return map[string]any{"ARN": "arn:aws:secretsmanager:local:" + account + ":secret:" + name, "Name": name, "SecretString": value, "VersionId": "1"}, nil
}

// ---- SQS

type queue struct {
	messages []*message
	arrived  chan struct{} // closed and renewed when a message is sent
	next     int
}

type message struct {
	id, body  string
	receipt   string
	deliverAt time.Time
	received  int
}

func (a *API) queue(url string) *queue {
	q := a.queues[url]
	if q == nil {
		q = &queue{arrived: make(chan struct{})}
		a.queues[url] = q
	}
	return q
}

// Send puts a message into a queue; queues come into being when they are named.
func (a *API) Send(queueURL, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queue(queueURL)
	q.next++
	q.messages = append(q.messages, &message{id: fmt.Sprintf("message-%d", q.next), body: body, deliverAt: a.w.Clock().Now()})
	close(q.arrived)
	q.arrived = make(chan struct{})
}

// Waiting returns how many messages a queue holds, those in flight included.
func (a *API) Waiting(queueURL string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue(queueURL).messages)
}

// receiveMessage polls long: it returns when there is a message or the time is over. A received message is hidden for its visibility
// time by the simulator's clock.
func (a *API) receiveMessage(r *request) (any, error) {
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
	over := time.NewTimer(time.Duration(in.Wait) * a.o.PollUnit)
	defer over.Stop()
	for {
		out, arrived := a.take(in.QueueURL, max(in.Max, 1), time.Duration(hidden)*time.Second)
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

func (a *API) take(url string, most int, hidden time.Duration) (out []map[string]string, arrived <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queue(url)
	now := a.w.Clock().Now()
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
func (a *API) deleteMessage(r *request) (any, error) {
	id, _, _ := strings.Cut(r.get("ReceiptHandle"), "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queue(r.get("QueueUrl"))
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.id == id })
	return map[string]any{}, nil
}

// ---- events

// Event returns an event of the simulator in the shape in which EventBridge delivers it.
func Event(e nodes.InterruptionEvent) string {
	detail := map[string]any{"instance-id": e.InstanceID}
	source, detailType := "aws.ec2", ""
	switch e.Kind {
	case nodes.Warning:
		detailType = "EC2 Spot Instance Interruption Warning"
		detail["instance-action"] = "terminate"
	case nodes.Rebalance:
		detailType = "EC2 Instance Rebalance Recommendation"
	case nodes.StateChange:
		detailType = "EC2 Instance State-change Notification"
		detail["state"] = string(e.State)
	case nodes.Health:
		source, detailType = "aws.health", "AWS Health Event"
		detail = map[string]any{
			"service": "EC2", "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
			"startTime": e.Start.UTC().Format(http.TimeFormat), "statusCode": "upcoming",
			"affectedEntities": []map[string]string{{"entityValue": e.InstanceID}},
		}
	}
	b, _ := json.Marshal(map[string]any{ // nothing in it can fail
		"version": "0", "id": e.ID, "detail-type": detailType, "source": source, "account": account, "region": "local",
		"time": e.At.UTC().Format(time.RFC3339), "resources": []string{"arn:aws:ec2:local:" + account + ":instance/" + e.InstanceID}, "detail": detail,
	})
	return string(b)
}

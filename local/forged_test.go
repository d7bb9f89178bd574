package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// forgery is a request that a role must not make.
type forgery struct {
	what    string
	subject string // to publish to
	body    string
	listen  string // to subscribe to, in place of publishing
}

// forgeries are those of each role.
func forgeries() map[role.Role][]forgery {
	request := func(what, verb string) forgery {
		return forgery{what: what, subject: "$JS.API." + verb, body: "{}"}
	}
	var (
		writesMap   = forgery{what: "writes an assignment map", subject: "$KV.defender-assignments.assignment-map", body: "{}"}
		leads       = forgery{what: "takes the leader's lease", subject: "$KV.defender-assignments.leader", body: "{}"}
		lease       = forgery{what: "writes a worker's lease", subject: "$KV.defender-heartbeats.defender-0", body: "{}"}
		name        = forgery{what: "claims a stable ID", subject: "$KV.stable-ids.defender-0", body: "{}"}
		acks        = forgery{what: "acknowledges somebody's message", subject: "$JS.ACK.dc-notifications.defender-l1-0000.1.1.1.1.0", body: "+ACK"}
		pulls       = request("pulls messages", "CONSUMER.MSG.NEXT.dc-notifications.defender-l1-0000")
		consumer    = request("makes a consumer of the messages", "CONSUMER.CREATE.dc-notifications.evil.defender.slot.>")
		unpins      = request("takes a worker's pin", "CONSUMER.UNPIN.dc-notifications.defender-l1-0000")
		purges      = request("purges the messages", "STREAM.PURGE.dc-notifications")
		deletes     = request("deletes the stream of messages", "STREAM.DELETE.dc-notifications")
		deletesMap  = request("deletes the map's bucket", "STREAM.DELETE.KV_defender-assignments")
		updates     = request("changes the stream of messages", "STREAM.UPDATE.dc-notifications")
		creates     = request("creates a stream of its own", "STREAM.CREATE.evil")
		deletesOne  = request("deletes a message", "STREAM.MSG.DELETE.dc-notifications")
		restores    = request("restores a stream", "STREAM.RESTORE.dc-notifications")
		snapshots   = request("takes a copy of the stream", "STREAM.SNAPSHOT.dc-notifications")
		reads       = request("reads a message", "STREAM.MSG.GET.dc-notifications")
		lists       = request("lists all streams", "STREAM.LIST")
		stepsDown   = request("has a stream's leader step down", "STREAM.LEADER.STEPDOWN.dc-notifications")
		evicts      = request("removes a server from a stream", "STREAM.PEER.REMOVE.dc-notifications")
		publishes   = forgery{what: "publishes a completion", subject: "dc.tool001.chamber1.completion", body: "{}"}
		skips       = forgery{what: "publishes to a slot itself", subject: "defender.slot.0.0.0.0.tool001.chamber1", body: "{}"}
		retries     = forgery{what: "writes into the retry queue", subject: "muster.defender.retry.0.key.0.0.0.0.tool001.chamber1", body: "{}"}
		alarm       = forgery{what: "raises an alarm", subject: "dc-alarm.tool001.chamber1.run1", body: "{}"}
		acknowledge = forgery{what: "acknowledges an alarm", subject: "dc-alarm-ack.tool001.chamber1.run1", body: "{}"}
		deadLetter  = forgery{what: "writes a dead letter", subject: "muster.defender.dead.letter", body: "{}"}
		drains      = forgery{what: "drains a worker", subject: "muster.defender.worker.defender-0.1.drain", body: "{}"}
		speaks      = forgery{what: "speaks as a worker", subject: "muster.defender.worker.defender-0.1", body: "{}"}
		event       = forgery{what: "forges an event", subject: "muster.defender.events.elected", body: "{}"}
		expects     = forgery{what: "tells how many workers there should be", subject: "$KV.defender-assignments.expected", body: "{}"}
		pins        = forgery{what: "pins slots", subject: "$KV.defender-assignments.pins", body: "{}"}
		layout      = forgery{what: "rewrites the layout", subject: "$KV.defender-assignments.layout", body: "{}"}
		hook        = request("takes what webhooks should get", "CONSUMER.MSG.NEXT.dc-alarms.webhooks")
		unhook      = request("deletes the consumer of webhooks", "CONSUMER.DELETE.dc-alarms.webhooks")
		rehook      = request("changes the consumer of webhooks", "CONSUMER.CREATE.dc-alarms.webhooks")
		rehookAt    = request("changes the consumer of webhooks by its filter", "CONSUMER.CREATE.dc-alarms.webhooks.dc-alarm.>")
		otherLease  = forgery{what: "writes a lease of another group", subject: "$KV.other-heartbeats.other-0", body: "{}"}
		otherMap    = forgery{what: "writes the map of another group", subject: "$KV.other-assignments.assignment-map", body: "{}"}
		answers     = forgery{what: "answers in another's place", subject: "_INBOX.defender-operator.abc.def", body: "{}"}
		hearsAll    = forgery{what: "listens to everything", listen: ">"}
		hearsInbox  = forgery{what: "listens to what the worker pulls", listen: "_INBOX.defender-worker.>"}
		hearsAny    = forgery{what: "listens to all answers", listen: "_INBOX.>"}
		hearsDone   = forgery{what: "listens to completions", listen: "dc.*.*.completion"}
		hearsAlarms = forgery{what: "listens to alarms", listen: "dc-alarm.>"}
		hearsEvents = forgery{what: "listens to events", listen: "muster.defender.events.*"}
		hearsPeers  = forgery{what: "listens to what workers say", listen: "muster.defender.worker.>"}
		hearsKV     = forgery{what: "listens to writes of the buckets", listen: "$KV.>"}
		hearsSystem = forgery{what: "listens to the servers' advisories", listen: "$JS.EVENT.>"}
	)
	join := func(lists ...[]forgery) (all []forgery) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	// What no role but the last may, from the least on.
	nobody := []forgery{purges, deletes, restores, snapshots, creates, lists, stepsDown, evicts, skips, otherLease, otherMap, answers,
		hearsAll, hearsAny, hearsDone, hearsKV, hearsSystem}
	coordination := []forgery{writesMap, leads, lease, name, acks, pulls, unpins, retries, alarm, deadLetter, speaks, event, hearsPeers, hearsInbox}
	operation := []forgery{pins, layout, updates}
	foreign := []forgery{publishes}
	looking := []forgery{reads, consumer, deletesOne}
	return map[role.Role][]forgery{
		// A worker deletes a bucket whose revisions have gone back; it may write there anyway.
		role.Worker: join(nobody, foreign, []forgery{drains}),
		role.Publisher: join(nobody, []forgery{deletesMap}, coordination, operation, looking, []forgery{expects, drains, acknowledge, hook, unhook, rehook, rehookAt, hearsAlarms, hearsEvents,
			request("reads the layout", "DIRECT.GET.KV_defender-assignments.$KV.defender-assignments.layout")}),
		role.Collector: join(nobody, []forgery{deletesMap}, coordination, operation, looking, []forgery{expects, drains, acknowledge, hook, unhook, rehook, rehookAt, hearsEvents,
			request("reads the map", "DIRECT.GET.KV_defender-assignments.$KV.defender-assignments.assignment-map")}),
		role.Caller: join(nobody, []forgery{deletesMap}, coordination, operation, looking, foreign, []forgery{expects, drains, acknowledge, hook, unhook, rehook, rehookAt, hearsAlarms, hearsEvents,
			{what: "takes the calls of a worker", listen: "muster.defender.worker.*.*.call"},
			request("reads the pins", "DIRECT.GET.KV_defender-assignments.$KV.defender-assignments.pins")}),
		role.Viewer:  join(nobody, []forgery{deletesMap}, coordination, operation, looking, foreign, []forgery{expects, drains, acknowledge, hook, unhook, rehook, rehookAt}),
		role.Console: join(nobody, []forgery{deletesMap}, coordination, operation, looking, foreign, []forgery{expects, hook, unhook, rehook, rehookAt}),
		role.Nodes: join(nobody, []forgery{deletesMap}, coordination, operation, looking, foreign, []forgery{acknowledge, hook, unhook, rehook, rehookAt, hearsAlarms, hearsEvents,
			request("reads the pins", "DIRECT.GET.KV_defender-assignments.$KV.defender-assignments.pins")}),
		role.Operator: join([]forgery{purges, deletes, deletesMap, restores, snapshots, creates, lists, stepsDown, evicts, skips, otherLease, otherMap,
			hearsAll, hearsAny, hearsDone, hearsKV, hearsSystem}, coordination, []forgery{deletesOne, reads, hook, unhook, rehook, rehookAt, hearsAlarms}),
	}
}

// newBusyCourt returns a court whose group is provisioned and has a message.
func newBusyCourt(t *testing.T) (*court, jetstream.JetStream) {
	t.Helper()
	c := newCourt(t, 1)
	harness := c.harness()
	if err := defender.Provision(t.Context(), harness, c.group); err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, harness)
	if _, err := js.Publish(t.Context(), "dc.tool001.chamber1.completion", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	return c, js
}

// TestForgedRequestsAreRefused has each role ask for what is none of its business. The
// server must refuse each of them by name, and nothing may have changed.
func TestForgedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	c, js := newBusyCourt(t)
	before := stateOfAll(t, js)
	for _, r := range role.All {
		list := forgeries()[r]
		if len(list) == 0 {
			t.Errorf("nothing is tried as the %s", r)
		}
		for _, f := range list {
			t.Run(string(r)+" "+f.what, func(t *testing.T) {
				if refused := refusedTo(t, c.url, c.users.of(r), f); !refused {
					t.Errorf("the server does not refuse that the %s %s: %s%s", r, f.what, f.subject, f.listen)
				}
			})
		}
	}
	if after := stateOfAll(t, js); after != before {
		t.Errorf("what was refused changed something:\n%s\n%s", before, after)
	}
}

// refusedTo reports whether the server refuses a request to a user.
func refusedTo(t *testing.T, url string, user access.User, f forgery) bool {
	t.Helper()
	told := make(chan error, 16)
	nc, err := nats.Connect(url, nats.UserInfo(user.Name, user.Password), nats.CustomInboxPrefix("_INBOX."+user.Name),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case told <- err:
			default:
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if f.listen != "" {
		_, err = nc.SubscribeSync(f.listen)
	} else {
		err = nc.PublishRequest(f.subject, nc.NewInbox(), []byte(f.body))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // the server has answered by then
		t.Fatal(err)
	}
	select {
	case err := <-told:
		return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), f.subject+f.listen)
	case <-time.After(2 * time.Second):
		return false
	}
}

// stateOfAll describes what all streams hold.
func stateOfAll(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	var b strings.Builder
	all := js.ListStreams(t.Context())
	for info := range all.Info() {
		_, _ = fmt.Fprintf(&b, "%s %d %d %d; ", info.Config.Name, info.State.Msgs, info.State.LastSeq, info.State.Consumers)
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGroupsAreApart has a worker of one group reach for another group on the same server.
func TestGroupsAreApart(t *testing.T) {
	t.Parallel()
	group := func(name string) partition.Config {
		return partition.Config{Name: name, Stream: name, Subject: name + ".*", Slots: 4}
	}
	password := func(string) string { return accounts.Quoted("p") }
	var text strings.Builder
	text.WriteString("accounts {\n")
	for _, name := range []string{"ants", "bees"} {
		one, err := accounts.Account{Group: group(name), Password: password}.Config()
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(strings.TrimSuffix(strings.TrimPrefix(one, "accounts {\n"), "}\n"))
	}
	text.WriteString("}\n")
	srv, err := broker.Start(broker.Options{Dir: t.TempDir(), Accounts: text.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	for _, name := range []string{"ants", "bees"} {
		nc, err := access.ConnectAs(srv.URL(), "test", access.User{Name: name + "-worker", Password: "p"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if err := partition.Open(nc, name).Provision(t.Context(), group(name)); err != nil {
			t.Fatalf("a worker of %s can't provision: %v", name, err)
		}
		// Both have a bucket stable-ids, each its own.
		js := natstest.JetStream(t, nc)
		ids, err := js.KeyValue(t.Context(), "stable-ids")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ids.Create(t.Context(), "same", []byte(name)); err != nil {
			t.Errorf("group %s meets the stable IDs of the other: %v", name, err)
		}
	}
	ants := access.User{Name: "ants-worker", Password: "p"}
	for _, f := range []forgery{
		{what: "a lease", subject: "$KV.bees-heartbeats.bees-0"}, {what: "the map", subject: "$KV.bees-assignments.assignment-map"},
		{what: "an acknowledgement", subject: "$JS.ACK.bees.bees-l1-0000.1.1.1.1.0"}, {what: "a request to a worker", subject: "muster.bees.worker.bees-0.1"},
		{what: "the retry queue", subject: "muster.bees.retry.0.key.0.a"}, {what: "a pull", subject: "$JS.API.CONSUMER.MSG.NEXT.bees.bees-l1-0000"},
		{what: "a purge", subject: "$JS.API.STREAM.PURGE.bees"}, {what: "events", listen: "muster.bees.events.*"}, {what: "answers", listen: "_INBOX.bees-worker.>"},
	} {
		t.Run(f.what, func(t *testing.T) {
			if !refusedTo(t, srv.URL(), ants, f) {
				t.Errorf("a worker of another group may reach %s%s", f.subject, f.listen)
			}
		})
	}
}

// TestAViewersConsumerReachesNoStream has a viewer, who may create consumers to read, ask
// for one that delivers to where the viewer may not publish. The server delivers only
// where there is a subscriber, and a stream is none. (Where somebody does subscribe it
// delivers what is stored, and a stream of that subject takes it, too: docs/security.md.)
func TestAViewersConsumerReachesNoStream(t *testing.T) {
	t.Parallel()
	c, js := newBusyCourt(t)
	viewer := c.as(role.Viewer)
	before := contents(t, js)
	deliver := func(t *testing.T, name, to string) {
		body, err := json.Marshal(map[string]any{"stream_name": "KV_defender-assignments", "action": "create", "config": map[string]any{
			"name": name, "deliver_subject": to, "filter_subject": "$KV.defender-assignments.>", "ack_policy": "none", "deliver_policy": "all"}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := viewer.Request("$JS.API.CONSUMER.CREATE.KV_defender-assignments."+name+".$KV.defender-assignments.>", body, 5*time.Second)
		if err != nil || strings.Contains(string(answer.Data), `"error"`) {
			t.Fatalf("the consumer was not created, so this shows nothing: %v, %s", err, answer.Data)
		}
	}
	for i, to := range []string{"$JS.API.STREAM.PURGE.dc-notifications", "$JS.API.STREAM.DELETE.dc-notifications", "$KV.defender-heartbeats.defender-0", "dc.x.y.completion", "muster.defender.dead.letter"} {
		deliver(t, fmt.Sprintf("evil-%d", i), to)
	}
	// One to the viewer itself, by which it shows that the others had their time.
	inbox := viewer.NewInbox()
	heard, err := viewer.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, "mine", inbox)
	if _, err := heard.NextMsg(10 * time.Second); err != nil {
		t.Fatalf("a consumer delivers nothing, so this shows nothing: %v", err)
	}
	if after := contents(t, js); after != before {
		t.Errorf("a viewer's consumer wrote elsewhere:\n%s\n%s", before, after)
	}
}

// contents describes what all streams hold, consumers aside.
func contents(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	var b strings.Builder
	all := js.ListStreams(t.Context())
	for info := range all.Info() {
		_, _ = fmt.Fprintf(&b, "%s %d %d; ", info.Config.Name, info.State.Msgs, info.State.LastSeq)
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

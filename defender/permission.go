package defender

import (
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// Permissions returns what the defenders' user of a role needs: what partition.Config
// says for the group, and for the streams of alarms and dead letters.
func Permissions(p partition.Config, r role.Role) (role.Permissions, error) {
	all, err := p.Permissions(r)
	if err != nil {
		return role.Permissions{}, err
	}
	api := func(verb, rest string) string { return "$JS.API." + verb + "." + rest }
	var more role.Permissions
	publish := func(subjects ...string) { more.Publish = append(more.Publish, subjects...) }
	makes := func() {
		publish(api("STREAM.INFO", AlarmStream), api("STREAM.CREATE", AlarmStream), api("STREAM.UPDATE", AlarmStream))
	}
	sees := func() {
		all = all.With(role.ReadStream(AlarmStream))
		if r != role.Worker {
			// The one consumer of that stream whose position matters.
			more.DenyPublish = append(more.DenyPublish, api("CONSUMER.*", AlarmStream+"."+WebhookConsumer), api("CONSUMER.*", AlarmStream+"."+WebhookConsumer+".>"),
				api("CONSUMER.MSG.NEXT", AlarmStream+"."+WebhookConsumer))
		}
	}
	acknowledges := func() {
		publish(acknowledgements, api("STREAM.MSG.GET", AlarmStream))
	}
	switch r {
	case role.Worker:
		makes()
		sees() // by its HTTP, which also acknowledges
		acknowledges()
		publish(alarms)
		// Webhooks settle what they posted.
		publish("$JS.ACK."+AlarmStream+"."+WebhookConsumer+".>", api("CONSUMER.CREATE", AlarmStream+"."+WebhookConsumer+"."+alarmsAll))
	case role.Viewer:
		sees()
		more.Subscribe = append(more.Subscribe, alarmsAll, acknowledgementsAll)
	case role.Console:
		sees()
		acknowledges()
		more.Subscribe = append(more.Subscribe, alarmsAll, acknowledgementsAll)
	case role.Operator:
		makes()
		sees()
		acknowledges()
	case role.Publisher:
		publish(IngestSubject)
	case role.Collector:
		more.Subscribe = append(more.Subscribe, IngestSubject, alarmsAll)
		more.Respond = true
	case role.Caller, role.Nodes:
	}
	return all.With(more), nil
}

// WebhookConsumer is the name of the consumer that all defenders share to post alarms.
const WebhookConsumer = "webhooks"

// What a client that follows alarms subscribes to.
const (
	alarmsAll           = "dc-alarm.>"
	acknowledgementsAll = "dc-alarm-ack.>"
)

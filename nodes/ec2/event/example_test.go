package event_test

import (
	"fmt"

	"github.com/muster-dev/muster/nodes/ec2/event"
)

// Events come as JSON, from a Lambda's invocation or from a queue.
func ExampleParse() {
	events, err := event.Parse([]byte(`{"id": "1", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
		"time": "2024-10-27T04:10:00Z", "detail": {"instance-id": "i-0b662ef9931388ba0", "instance-action": "terminate"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(events[0].Kind, events[0].InstanceID, events[0].At)
	// Output: warning i-0b662ef9931388ba0 2024-10-27 04:10:00 +0000 UTC
}

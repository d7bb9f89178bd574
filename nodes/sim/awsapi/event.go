package awsapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/muster-dev/muster/nodes"
)

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

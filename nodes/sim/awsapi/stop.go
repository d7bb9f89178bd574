package awsapi

import (
	"encoding/xml"
	"errors"

	"github.com/muster-dev/muster/nodes/sim"
)

type stopInstancesResponse struct {
	XMLName   xml.Name     `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ StopInstancesResponse"`
	RequestID string       `xml:"requestId"`
	Instances []wireChange `xml:"instancesSet>item"`
}

// stopInstances stops instances, whose machines lose their power.
func (c *compute) stopInstances(r *request) (any, error) {
	ids := r.list("InstanceId")
	before, err := c.client.Lookup(r.ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, ok := before[id]; !ok {
			return nil, refused("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
	}
	out := stopInstancesResponse{RequestID: "simulated"}
	for _, id := range ids {
		err := c.client.Stop(r.ctx, id)
		if errors.Is(err, sim.ErrSpotStop) {
			return nil, refused("UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", id)
		}
		if err != nil {
			return nil, err
		}
		out.Instances = append(out.Instances, wireChange{id, wireStateOf(c.region.Instance(id).State), wireStateOf(before[id].State)})
	}
	return out, nil
}

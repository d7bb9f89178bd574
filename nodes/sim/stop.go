package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// ErrSpotStop is the answer to a request to stop a Spot instance: one of a one-time request can only be terminated.
var ErrSpotStop = errors.New("a Spot instance cannot be stopped")

// stop powers an instance off. It is still there, and so is its node, whose pods are lost once Kubernetes gives them up.
func (f *fleet) stop(in *instance) {
	in.State = nodes.StateStopping
	if n := in.node; n != nil {
		f.time.after(10*time.Second, func() { f.setReady(n, false) })
		f.time.after(310*time.Second, func() { // pods tolerate a node that is not Ready for five minutes
			if !n.Ready {
				f.pods.release(n)
			}
		})
	}
	f.time.after(30*time.Second, func() {
		if in.State == nodes.StateStopping {
			in.State = nodes.StateStopped
		}
	})
}

// Stop stops an instance, as a person does: Muster never asks for it. It does nothing to one that does not run.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.do(ctx, CloudPart, "cloud.Stop", func(context.Context) error {
		in := c.state.fleet.find(id)
		if in == nil || !in.alive() {
			return nil
		}
		if in.Market == nodes.Spot {
			return fmt.Errorf("stopping %s: %w", id, ErrSpotStop)
		}
		c.log(Entry{Kind: Stopped, Instance: id, Zone: in.Zone, Facts: c.state.fleet.facts(in)})
		c.state.fleet.stop(in)
		return nil
	})
}

package ec2

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

var _ nodes.StatusReader = (*Cloud)(nil)

// mostStatuses is how many instances one DescribeInstanceStatus may name.
const mostStatuses = 100

// Impaired reads the system and instance status checks of running instances. It names the instances, because the call
// has no filter by tag and would list those of the whole account. EC2 then answers for all or fails: an ID that it does not
// know yet is an error, and so is a page that is missing.
func (c *Cloud) Impaired(ctx context.Context, instanceIDs []string) (map[string]nodes.Impairment, error) {
	out := map[string]nodes.Impairment{}
	for ids := range slices.Chunk(instanceIDs, mostStatuses) {
		if err := c.impaired(ctx, ids, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// impaired adds what one request names to out. The request may not say how large a page is: MaxResults excludes IDs.
func (c *Cloud) impaired(ctx context.Context, ids []string, out map[string]nodes.Impairment) error {
	in := &ec2.DescribeInstanceStatusInput{InstanceIds: ids}
	for page := 1; ; page++ {
		reply, err := c.api.EC2.DescribeInstanceStatus(ctx, in)
		if err != nil {
			return fmt.Errorf("describing the status of %s, page %d: %w", quantity.Of(len(ids), "instance"), page, explained(err))
		}
		for _, s := range reply.InstanceStatuses {
			found := failure("system", s.SystemStatus).And(failure("instance", s.InstanceStatus))
			if id := aws.ToString(s.InstanceId); found.Failed() && slices.Contains(ids, id) {
				out[id] = found
			}
		}
		next := aws.ToString(reply.NextToken)
		if next == "" {
			return nil
		}
		if next == aws.ToString(in.NextToken) {
			return &nodes.IncompleteError{What: "instance statuses", Err: fmt.Errorf("page %d names itself as the next one", page)}
		}
		in.NextToken = &next
	}
}

// failure is a check that has failed. One that is still initializing, or has too little data, has not.
func failure(check string, s *types.InstanceStatusSummary) nodes.Impairment {
	if s == nil || s.Status != types.SummaryStatusImpaired {
		return nodes.Impairment{}
	}
	out := nodes.Impairment{Check: check}
	for _, d := range s.Details {
		if d.Status == types.StatusTypeFailed && d.ImpairedSince != nil && (out.Since.IsZero() || d.ImpairedSince.Before(out.Since)) {
			out.Since = d.ImpairedSince.UTC()
		}
	}
	return out
}

package awsapi

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes"
)

type describeInstanceStatusResponse struct {
	XMLName   xml.Name       `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeInstanceStatusResponse"`
	RequestID string         `xml:"requestId"`
	Statuses  []wireVMStatus `xml:"instanceStatusSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

type wireVMStatus struct {
	ID       string      `xml:"instanceId"`
	Zone     string      `xml:"availabilityZone"`
	State    wireState   `xml:"instanceState"`
	System   wireSummary `xml:"systemStatus"`
	Instance wireSummary `xml:"instanceStatus"`
}

type wireSummary struct {
	Status  string       `xml:"status"`
	Details []wireDetail `xml:"details>item"`
}

type wireDetail struct {
	Name          string `xml:"name"`
	Status        string `xml:"status"`
	ImpairedSince string `xml:"impairedSince,omitempty"`
}

// mostStatuses is how many instances one DescribeInstanceStatus may name.
const mostStatuses = 100

// describeInstanceStatus answers for running instances: those that are named, or all of the account.
func (c *compute) describeInstanceStatus(r *request) (any, error) {
	wanted := r.list("InstanceId")
	switch {
	case len(wanted) > mostStatuses:
		return nil, refused("InvalidParameterValue", "At most %d instance IDs can be specified", mostStatuses)
	case len(wanted) > 0 && r.get("MaxResults") != "":
		return nil, refused("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	all := append(c.region.Instances(), c.options.Foreign...)
	if len(wanted) > 0 {
		all = slices.DeleteFunc(all, func(in nodes.Instance) bool { return !slices.Contains(wanted, in.ID) })
	}
	if missing := withoutInstance(wanted, all); len(missing) > 0 {
		return nil, refused("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(missing, ", "))
	}
	all = slices.DeleteFunc(all, func(in nodes.Instance) bool { return in.State != nodes.StateRunning })

	var ids []string
	for _, in := range all {
		ids = append(ids, in.ID)
	}
	found, err := c.client.Impaired(r.ctx, ids)
	if err != nil {
		return nil, err
	}
	page, next, err := r.page(c.options.PageSize, len(all))
	if err != nil {
		return nil, err
	}
	out := describeInstanceStatusResponse{RequestID: "simulated", NextToken: next}
	for _, in := range all[page[0]:page[1]] {
		out.Statuses = append(out.Statuses, wireVMStatus{
			ID:       in.ID,
			Zone:     in.Zone,
			State:    wireStateOf(in.State),
			System:   summary("system", found[in.ID]),
			Instance: summary("instance", found[in.ID]),
		})
	}
	return out, nil
}

// withoutInstance returns the IDs of which there is no instance.
func withoutInstance(ids []string, all []nodes.Instance) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return slices.ContainsFunc(all, func(in nodes.Instance) bool { return in.ID == id })
	})
}

// summary is one check as EC2 shows it.
func summary(check string, i nodes.Impairment) wireSummary {
	if !strings.Contains(i.Check, check) {
		return wireSummary{"ok", []wireDetail{{Name: "reachability", Status: "passed"}}}
	}
	return wireSummary{"impaired", []wireDetail{{"reachability", "failed", i.Since.UTC().Format("2006-01-02T15:04:05.000Z")}}}
}

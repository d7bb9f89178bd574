package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
)

// offering is an instance type as it can be had now.
type offering struct {
	InstanceType
	room     nodes.Resources  // what an empty node has for pods that are no DaemonSet's
	extended map[string]int64 // nil: none
	price    float64          // USD an hour, of the cheapest market that can be had
	zones    uint64           // in which it can be had, a bit each
	nodes    []*corev1.Node   // what a node of it would look like, by zone
}

// market is everything that can be launched.
type market struct {
	offerings []offering
	zones     []string
	complete  bool // every offered type is in the catalog
	placed    bool // the zones are all that there are
}

// perNode are labels that differ from node to node, and those that a new node gets by its type and zone.
func perNode(label string) bool {
	switch label {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable, corev1.LabelArchStable,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, "beta.kubernetes.io/arch":
		return true
	}
	return false
}

// stock sets an offering's price and zones to those of the first market that can be had somewhere; false if there is none. Where zones
// differ in price it is their mean: which of them a node will be in, the balance of the zones decides.
func (f *Fit) stock(of *offering, p nodes.Policy, zones []string, exhausted []nodes.Exhausted, now time.Time) bool {
	markets := []nodes.Market{nodes.OnDemand}
	if p.Spot {
		markets = []nodes.Market{nodes.Spot, nodes.OnDemand}
	}
	for _, mk := range markets {
		priced, usd := of.zones != 0, []float64(nil)
		for i, z := range zones {
			o := nodes.Offering{Zone: z, Type: of.Name, Market: mk, Pool: p.Pool}
			out := slices.ContainsFunc(exhausted, func(e nodes.Exhausted) bool {
				return e.Subnet == "" && now.Unix() < e.UntilEpoch && e.Covers(o)
			})
			if !out {
				usd = append(usd, f.priceOf(of.InstanceType, mk, z))
				of.zones |= 1 << i
			}
		}
		if !priced && len(usd) > 0 {
			of.price = mean(usd)
		}
	}
	return of.zones != 0
}

// mean is exact where all are alike, as by the table: three times a price by three need not be the price.
func mean(usd []float64) float64 {
	sum, alike := 0.0, true
	for _, x := range usd {
		sum, alike = sum+x, alike && x == usd[0]
	}
	if alike {
		return usd[0]
	}
	return sum / float64(len(usd))
}

// never returns why no offering runs a pod even on an empty node; "" if one does, or if that can't be known.
func (m market) never(k *kind, pod nodes.Pod) string {
	if k.problem != "" {
		return k.problem
	}
	if !m.complete {
		return ""
	}
	var admitted []string
	why := ""
	for i := range m.offerings {
		of := &m.offerings[i]
		for z := range m.zones {
			if of.zones&(1<<z) == 0 {
				continue
			}
			reason := k.admits(of.nodes[z])
			if reason == "" || !m.placed && !k.anywhere {
				admitted = append(admitted, of.Name)
				if of.holds(k, pod.Requests) {
					return ""
				}
				break
			}
			why = reason
		}
	}
	switch {
	case len(m.offerings) == 0:
		return ""
	case len(admitted) == 0:
		return fmt.Sprintf("%s on a new node of any of %s in any of %s", why, m.names(), strings.Join(m.zones, ", "))
	}
	most := make([]string, 0, len(k.Resources))
	for _, name := range slices.Sorted(maps.Keys(k.Resources)) {
		most = append(most, fmt.Sprintf(", %d %s", k.Resources[name], name))
	}
	return fmt.Sprintf("it asks for %s%s, more than an empty node of %s has", asks(pod), strings.Join(most, ""), strings.Join(admitted, ", "))
}

func (m market) names() string {
	names := make([]string, len(m.offerings))
	for i, o := range m.offerings {
		names[i] = o.Name
	}
	return strings.Join(names, ", ")
}

// holds reports whether an empty node has room for a pod.
func (of *offering) holds(k *kind, want nodes.Resources) bool {
	if of.room.Pods < 1 || of.room.MilliCPU < want.MilliCPU || of.room.Memory < want.Memory {
		return false
	}
	for name, n := range k.Resources {
		if of.extended[name] < n {
			return false
		}
	}
	return true
}

func asks(p nodes.Pod) string {
	return fmt.Sprintf("%dm CPU, %d MiB", p.Requests.MilliCPU, p.Requests.Memory>>20)
}

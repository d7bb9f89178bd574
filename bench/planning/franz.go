package planning

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FranzSticky is franz-go's eager sticky balancer. Timed is BalanceOrError on
// members whose metadata is parsed already: decoding the previous assignment
// from the members' user data, which this balancer does in there, and planning.
func FranzSticky() Planner {
	return franz("franz-go sticky", kgo.StickyBalancer(), group.planOnly)
}

// FranzCooperative is franz-go's cooperative-sticky balancer. Timed is
// BalanceOrError on members whose metadata is parsed already: planning, and
// taking the partitions that move out of the plan until the second round.
func FranzCooperative() Planner {
	return franz("franz-go cooperative", kgo.CooperativeStickyBalancer(), group.planOnly)
}

// FranzEncoded is FranzCooperative with the encoding of the members' metadata,
// its parsing and the encoding of the assignment: what one round costs the
// members and the leader together, apart from the network.
func FranzEncoded() Planner {
	return franz("franz-go cooperative, encoded", kgo.CooperativeStickyBalancer(), group.encoded)
}

// FranzAdjusting is the last part of FranzCooperative alone, which makes the
// plan cooperative. What FranzCooperative takes longer is the bare planner,
// which can't be called from outside of franz-go.
func FranzAdjusting() Planner {
	return Planner{Name: "franz-go cooperative, adjusting", Prepare: func(c Case) (Run, error) {
		eager := group{kgo.StickyBalancer(), c.Slots}
		first, err := eager.first(c.Before)
		if err != nil {
			return Run{}, err
		}
		owned := members(without(first, c.After), c.After)
		next, err := eager.round(owned, 1)
		if err != nil {
			return Run{}, err
		}
		full, _ := eager.owners(next, c.After)
		cooperative := group{kgo.CooperativeStickyBalancer(), c.Slots}
		b, err := cooperative.parse(cooperative.join(owned, 1))
		if err != nil {
			return Run{}, err
		}
		consumers := b.(*kgo.ConsumerBalancer)
		var plan *kgo.BalancePlan
		return Run{
			Reset: func() { plan = unadjusted(consumers, full, c.After) },
			Plan:  func() { plan.AdjustCooperative(consumers) },
		}, nil
	}}
}

// unadjusted is the plan that gives every slot its owner.
func unadjusted(consumers *kgo.ConsumerBalancer, owners []int32, workers int) *kgo.BalancePlan {
	plan := consumers.NewPlan()
	for w, slots := range members(owners, workers) {
		if len(slots) > 0 {
			plan.AsMemberIDMap()[id(w)][topic] = slots
		}
	}
	return plan
}

// topic is the one whose partitions stand for the slots.
const topic = "slots"

// group plans slots as the partitions of a topic, through the interface that
// franz-go's consumer group uses.
type group struct {
	balancer kgo.GroupBalancer
	slots    int
}

// franz prepares a case and leaves to mode what of a round is timed.
func franz(name string, balancer kgo.GroupBalancer, mode func(group, [][]int32) (func() kgo.IntoSyncAssignment, error)) Planner {
	return Planner{Name: name, Prepare: func(c Case) (Run, error) {
		g := group{balancer, c.Slots}
		first, err := g.first(c.Before)
		if err != nil {
			return Run{}, err
		}
		plan, err := mode(g, members(without(first, c.After), c.After))
		if err != nil {
			return Run{}, err
		}
		var next kgo.IntoSyncAssignment
		return Run{
			Plan: func() { next = plan() },
			Outcome: func() (before, after []int32) {
				after, err := g.settle(next, c.After)
				if err != nil {
					panic(err) // it has decoded its own metadata before
				}
				return first, after
			},
		}, nil
	}}
}

// planOnly parses the members' metadata beforehand.
func (g group) planOnly(owned [][]int32) (func() kgo.IntoSyncAssignment, error) {
	b, err := g.parse(g.join(owned, 1))
	if err != nil {
		return nil, err
	}
	if _, err := g.balance(b); err != nil {
		return nil, err
	}
	return func() kgo.IntoSyncAssignment {
		next, _ := g.balance(b) // the same as the one above
		return next
	}, nil
}

// encoded does everything from the members' assignments to the encoded plan.
func (g group) encoded(owned [][]int32) (func() kgo.IntoSyncAssignment, error) {
	if _, err := g.round(owned, 1); err != nil {
		return nil, err
	}
	return func() kgo.IntoSyncAssignment {
		b, _ := g.parse(g.join(owned, 1)) // the same as the one above
		next, _ := g.balance(b)
		next.IntoSyncAssignment()
		return next
	}, nil
}

// first plans for that many workers and slots that nobody owns.
func (g group) first(workers int) ([]int32, error) {
	nobody := make([]int32, g.slots)
	for s := range nobody {
		nobody[s] = -1
	}
	if workers == 0 {
		return nobody, nil
	}
	next, err := g.round(members(nobody, workers), 0)
	if err != nil {
		return nil, err
	}
	return g.settle(next, workers)
}

// settle returns the owners after a plan. If the plan leaves out slots that
// move, as a cooperative one does, it makes the second round that gives them
// to their new owners.
func (g group) settle(next kgo.IntoSyncAssignment, workers int) ([]int32, error) {
	for generation := int32(2); ; generation++ {
		owners, complete := g.owners(next, workers)
		if complete {
			return owners, nil
		}
		if generation > 3 {
			return nil, fmt.Errorf("%s does not settle", g.balancer.ProtocolName())
		}
		var err error
		if next, err = g.round(members(owners, workers), generation); err != nil {
			return nil, err
		}
	}
}

func (g group) owners(next kgo.IntoSyncAssignment, workers int) (owners []int32, complete bool) {
	owners = make([]int32, g.slots)
	for s := range owners {
		owners[s] = -1
	}
	assigned := 0
	plan := next.(*kgo.BalancePlan).AsMemberIDMap()
	for w := range workers {
		for _, s := range plan[id(w)][topic] {
			owners[s] = int32(w)
			assigned++
		}
	}
	return owners, assigned == g.slots
}

// round is one join, balance and sync.
func (g group) round(owned [][]int32, generation int32) (kgo.IntoSyncAssignment, error) {
	b, err := g.parse(g.join(owned, generation))
	if err != nil {
		return nil, err
	}
	return g.balance(b)
}

// join makes the members' requests to join. Who owns nothing is new.
func (g group) join(owned [][]int32, generation int32) []kmsg.JoinGroupResponseMember {
	joined := make([]kmsg.JoinGroupResponseMember, len(owned))
	for w, slots := range owned {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = id(w)
		if len(slots) > 0 {
			m.ProtocolMetadata = g.balancer.JoinGroupMetadata([]string{topic}, map[string][]int32{topic: slots}, generation)
		} else {
			m.ProtocolMetadata = g.balancer.JoinGroupMetadata([]string{topic}, nil, -1)
		}
		joined[w] = m
	}
	return joined
}

func (g group) parse(joined []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancerOrError, error) {
	b, _, err := g.balancer.MemberBalancer(joined)
	if err != nil {
		return nil, err
	}
	return b.(kgo.GroupMemberBalancerOrError), nil
}

func (g group) balance(b kgo.GroupMemberBalancerOrError) (kgo.IntoSyncAssignment, error) {
	return b.BalanceOrError(map[string]int32{topic: int32(g.slots)})
}

// members lists the slots of each worker, ascending.
func members(owners []int32, workers int) [][]int32 {
	owned := make([][]int32, workers)
	for s, w := range owners {
		if w >= 0 {
			owned[w] = append(owned[w], int32(s))
		}
	}
	return owned
}

// without takes the slots away from workers that are not among the first so
// many.
func without(owners []int32, workers int) []int32 {
	left := make([]int32, len(owners))
	for s, w := range owners {
		if left[s] = w; int(w) >= workers {
			left[s] = -1
		}
	}
	return left
}

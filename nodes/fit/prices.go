package fit

import (
	"math"
)

// dimensions of what pods ask for and nodes offer: cores, GiB, pods.
const dims = 3

type vector [dims]float64

func (a vector) dot(b vector) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

// plane is a constraint room . price <= cost on prices.
type plane struct {
	room vector
	cost float64
}

// shadowPrices returns what a core, a GiB and a place for a pod are worth, in USD an hour: the prices at which a demand is worth most
// while no node is worth more than it costs. It is the dual of the linear programme that covers the demand by fractions of nodes,
// so demand . prices is a lower bound of what any set of nodes that covers it costs.
//
// The programme has three variables and one constraint per kind of node. It is solved by cutting planes: the best vertex of few
// constraints is found by looking at all of them, and the constraint that it breaks most joins, until it breaks none.
func shadowPrices(demand vector, all []plane) vector {
	var active []plane
	for d := range dims { // these bound every price
		best := -1
		for i, p := range all {
			if p.room[d] > 0 && (best < 0 || p.cost/p.room[d] < all[best].cost/all[best].room[d]) {
				best = i
			}
		}
		if best < 0 {
			return vector{}
		}
		active = append(active, all[best])
	}
	for range 64 {
		price := bestVertex(demand, active)
		worst, by := -1, 1e-9
		for i, p := range all {
			if over := (p.room.dot(price) - p.cost) / p.cost; over > by {
				worst, by = i, over
			}
		}
		if worst < 0 {
			return price
		}
		active = append(active, all[worst])
	}
	// Not reached in practice. Scaled down, the last prices are a weaker bound, and valid.
	price := bestVertex(demand, active)
	most := 1.0
	for _, p := range all {
		most = math.Max(most, p.room.dot(price)/p.cost)
	}
	for d := range price {
		price[d] /= most
	}
	return price
}

// bestVertex returns the corner of the prices that keep every plane, and are not negative, at which the demand is worth most.
func bestVertex(demand vector, planes []plane) vector {
	rows := make([]plane, 0, len(planes)+dims)
	rows = append(rows, planes...)
	for d := range dims {
		var axis plane
		axis.room[d] = 1
		rows = append(rows, axis)
	}
	var best vector
	worth := 0.0
	for i := range rows {
		for j := range i {
			for k := range j {
				v, ok := solve(rows[i], rows[j], rows[k])
				if ok && demand.dot(v) > worth && keeps(v, planes) {
					best, worth = v, demand.dot(v)
				}
			}
		}
	}
	return best
}

func keeps(v vector, planes []plane) bool {
	for _, x := range v {
		if x < -1e-12 {
			return false
		}
	}
	for _, p := range planes {
		if p.room.dot(v) > p.cost*(1+1e-9) {
			return false
		}
	}
	return true
}

// solve returns where three planes meet, by Cramer's rule.
func solve(a, b, c plane) (vector, bool) {
	det := func(x, y, z vector) float64 {
		return x[0]*(y[1]*z[2]-y[2]*z[1]) - x[1]*(y[0]*z[2]-y[2]*z[0]) + x[2]*(y[0]*z[1]-y[1]*z[0])
	}
	d := det(a.room, b.room, c.room)
	scale := math.Sqrt(a.room.dot(a.room) * b.room.dot(b.room) * c.room.dot(c.room))
	if math.Abs(d) <= 1e-12*scale {
		return vector{}, false
	}
	var out vector
	for i := range dims {
		x, y, z := a.room, b.room, c.room
		x[i], y[i], z[i] = a.cost, b.cost, c.cost
		out[i] = math.Max(det(x, y, z)/d, 0)
		if det(x, y, z)/d < -1e-9 {
			return vector{}, false
		}
	}
	return out, true
}

package tchart

// Recorders stamp samples with the ticks of a clock, counted in 1/512 s or
// milliseconds, say, and print the time with a few digits. Such times are written
// as ticks and, where it isn't the tick's time as printed, a correction of the
// last digit.

// ticks are the clocks looked for, in ticks a second.
var ticks = [16]int64{10, 20, 25, 50, 60, 64, 100, 120, 128, 256, 512, 1000, 1024, 2048, 4096, 8192}

// significants are the numbers of digits that times are printed with: any, as
// many as the column has; or C's %g with 6 or 7, or 5.
var significants = [4]int{0, 6, 7, 5}

// maxTick bounds ticks, so that nothing overflows.
const maxTick = int64(1) << 40

// A clock prints ticks.
type clock struct {
	perSecond   int64
	scale       int64 // 10^digits: times are in units of 1/scale
	significant int
	// From each of these ticks on, the last digit printed is worth ten times more.
	limits []int64
}

func (c *clock) set(perSecond int64, digits, significant int) {
	c.perSecond, c.scale, c.significant, c.limits = perSecond, int64(pow10[digits]), significant, c.limits[:0]
	if significant == 0 {
		return
	}
	// Of 10^significant units of the last digit and more, one digit is not printed.
	for units := int64(pow10[significant]); len(c.limits) <= digits; units *= 10 {
		c.limits = append(c.limits, (units/c.scale)*perSecond+(units%c.scale*perSecond+c.scale-1)/c.scale)
	}
}

// print returns the time of a tick in units of 1/scale, rounded half up to the
// significant digits, and the value of the last of these.
func (c *clock) print(tick int64) (printed, unit int64) {
	if tick < 0 {
		printed, unit = c.print(-tick)
		return -printed, unit
	}
	unit = 1
	for _, limit := range c.limits {
		if tick < limit {
			break
		}
		unit *= 10
	}
	d := c.perSecond * unit
	if tick < 1<<40 {
		return (2*tick*c.scale + d) / (2 * d) * unit, unit
	}
	return (tick/d*c.scale + (2*(tick%d)*c.scale+d)/(2*d)) * unit, unit
}

// nearestTick returns the tick whose time is nearest to v, in units of
// 10^-digits.
func nearestTick(v, perSecond int64, digits int) int64 {
	scale := int64(pow10[digits])
	if v < 0 {
		return -nearestTick(-v, perSecond, digits)
	}
	return v/scale*perSecond + (2*(v%scale)*perSecond+scale)/(2*scale)
}

// maxGridDigits keeps products of ticks and units within 63 bits.
const maxGridDigits = 6

// grid is a column of times as ticks.
type grid struct {
	clock       int   // index in ticks
	significant int   // index in significants
	interval    int64 // usual ticks from row to row; counts are of the ticks beyond it
	counts      plan
	corrections plan
}

func (g *grid) cost() int { return g.counts.cost + g.corrections.cost + 4<<8 }

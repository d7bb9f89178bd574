package planning

// Planners are the contenders, Muster's default first.
func Planners() []Planner {
	return []Planner{Sticky(), FranzSticky(), FranzCooperative(), FranzAdjusting(), FranzEncoded(), Ring(160)}
}

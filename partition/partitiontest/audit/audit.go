package audit

// Auditor judges the facts of one run. W identifies a worker, and is printed with %v. It is not
// safe for concurrent use: facts have an order.
type Auditor[W comparable, F Fence[F]] struct {
	verdicts *verdicts
	slots    []*Slot[W, F]
	keys     []*Key[W, F]
}

// New returns an auditor that reports each violation when it happens.
func New[W comparable, F Fence[F]](violated func(Violation)) *Auditor[W, F] {
	return &Auditor[W, F]{verdicts: &verdicts{violated: violated}}
}

// Slot adds a slot. Its name is for people.
func (a *Auditor[W, F]) Slot(name string) *Slot[W, F] {
	s := &Slot[W, F]{verdicts: a.verdicts, name: name, owners: make(map[F]W)}
	a.slots = append(a.slots, s)
	return s
}

// Key adds a key of a slot. Its name is for people.
func (a *Auditor[W, F]) Key(name string, s *Slot[W, F]) *Key[W, F] {
	k := &Key[W, F]{slot: s, name: name, next: 1}
	a.keys = append(a.keys, k)
	return k
}

// WentBack notes that the broker went back to an earlier state: what was published until now
// may be delivered again, also after later messages.
func (a *Auditor[W, F]) WentBack() {
	for _, k := range a.keys {
		k.replayed = len(k.messages)
	}
}

// ForgetFences notes that the group has lost its map, and no worker lives that has seen it.
// Until the next write to a slot its owners learn the fence by being rejected.
func (a *Auditor[W, F]) ForgetFences() {
	for _, s := range a.slots {
		s.forgotten = true
	}
}

// IgnoreFences notes that what fences rest on is lost, such as the revisions of a bucket that went
// back to an earlier state. From now on a store's decisions count, and no fence is a violation.
func (a *Auditor[W, F]) IgnoreFences() { a.verdicts.unfenced = true }

// Close reports each message that has yet to be processed as lost. Nothing happens after it.
func (a *Auditor[W, F]) Close() {
	for _, k := range a.keys {
		for n := k.Next(); n <= len(k.messages); n++ {
			if k.Waits(n) {
				a.verdicts.violate(Lost, "%s %d was not processed", k.name, n)
			}
		}
	}
}

package audit

// Slot is what one worker owns at a time. An environment that doesn't know which keys share a
// slot gives each key one of its own.
type Slot[W comparable, F Fence[F]] struct {
	verdicts *verdicts
	name     string

	// Parallel lets a worker handle messages of different keys at the same time.
	Parallel bool

	highest owner[W, F] // that the slot was held with
	stored  owner[W, F] // of the last write that was not rejected
	owners  map[F]W
	running []running[W, F]

	// forgotten: no worker can know the fences that were seen until now.
	forgotten bool
}

// running is a handler at work.
type running[W comparable, F Fence[F]] struct {
	*Handling[W, F]
	key string
}

type owner[W comparable, F Fence[F]] struct {
	worker W
	fence  F
	known  bool
}

// Held notes that a worker owns the slot with a fence; valid is whether its lease is valid.
func (s *Slot[W, F]) Held(w W, fence F, valid bool) {
	before, known := s.owners[fence]
	top := s.highest
	switch {
	case known && before != w:
		s.verdicts.violate(FenceUnique, "%s: %v has fence %v, which %v had", s.name, w, fence, before)
	case valid && !s.forgotten && top.known && top.worker != w && fence.Compare(top.fence) <= 0:
		s.verdicts.violate(FenceGrows, "%s: %v has fence %v after %v of %v", s.name, w, fence, top.fence, top.worker)
	}

	if !known {
		s.owners[fence] = w
	}
	if !top.known || fence.Compare(top.fence) > 0 {
		s.highest = owner[W, F]{w, fence, true}
	}
}

// begin notes that a handler begins beside those that still run.
func (s *Slot[W, F]) begin(key string, h *Handling[W, F]) {
	still := s.running[:0]
	for _, o := range s.running {
		standing := o.Standing()
		if standing == Over {
			continue
		}
		still = append(still, o)
		switch {
		case o.Worker == h.Worker && s.Parallel && o.key != key:
		case o.Worker == h.Worker:
			s.verdicts.violate(OneHandler, "%s: %v begins %s %d while its own handler is at %d", s.name, h.Worker, key, h.Number, o.Number)
		case standing == Valid:
			s.verdicts.violate(OneHandler, "%s: %v begins %s %d with fence %v while %v works on %d with %v",
				s.name, h.Worker, key, h.Number, h.Fence, o.Worker, o.Number, o.Fence)
		case standing == Stale && h.Fence.Compare(o.Fence) <= 0:
			s.verdicts.violate(ZombieFence, "%s: %v begins with fence %v, the zombie %v has %v", s.name, h.Worker, h.Fence, o.Worker, o.Fence)
		}
	}
	s.running = append(still, running[W, F]{h, key})
}

// admit reports whether a store that knows fences accepts a write.
func (s *Slot[W, F]) admit(key string, h *Handling[W, F]) bool {
	if last := s.stored; last.known {
		switch order := h.Fence.Compare(last.fence); {
		case order < 0:
			if !s.forgotten && h.Standing() == Valid {
				s.verdicts.violate(FenceGrows, "%s: %v writes %s %d with fence %v, and %v has written with %v",
					s.name, h.Worker, key, h.Number, h.Fence, last.worker, last.fence)
			}
			return false
		case order == 0 && last.worker != h.Worker:
			s.verdicts.violate(FenceUnique, "%s: %v and %v write with fence %v", s.name, last.worker, h.Worker, h.Fence)
		}
	}

	if s.forgotten {
		s.highest, s.forgotten = owner[W, F]{}, false
		clear(s.owners)
	}
	s.stored = owner[W, F]{h.Worker, h.Fence, true}
	return true
}

// Stored returns the fence of the last write that was not rejected.
func (s *Slot[W, F]) Stored() F { return s.stored.fence }

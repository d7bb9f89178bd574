package console

// ring keeps the newest elements of a sequence. Element number n of the sequence is at n % limit; next is the number that the next
// one gets.
type ring[T any] struct {
	limit int
	items []T
	next  uint64
}

func (r *ring[T]) add(v T) {
	if len(r.items) < r.limit {
		r.items = append(r.items, v)
	} else {
		r.items[r.next%uint64(r.limit)] = v
	}
	r.next++
}

func (r *ring[T]) first() uint64 { return r.next - uint64(len(r.items)) }

func (r *ring[T]) at(n uint64) T { return r.items[n%uint64(r.limit)] }

// last returns the newest n elements, oldest first.
func (r *ring[T]) last(n int) []T { return r.since(0, n) }

// since returns the elements from number from on, the newest limit of them, oldest first.
func (r *ring[T]) since(from uint64, limit int) []T {
	from = max(from, r.first())
	if from >= r.next {
		return []T{}
	}
	if r.next-from > uint64(limit) {
		from = r.next - uint64(limit)
	}
	out := make([]T, 0, r.next-from)
	for n := from; n < r.next; n++ {
		out = append(out, r.at(n))
	}
	return out
}

// before adds to out the elements with numbers below n that match, newest first, until there are limit of them or it has looked at
// most of them. It returns the number to go on from; that of the first element means that there are no more.
func (r *ring[T]) before(out []T, n uint64, limit, most int, match func(T) bool) ([]T, uint64) {
	for n = min(n, r.next); n > r.first() && len(out) < limit && most > 0; n, most = n-1, most-1 {
		if v := r.at(n - 1); match(v) {
			out = append(out, v)
		}
	}
	return out, n
}

package places

// numbers are those of the attempts for one key. A Service may make the ID of a place of the number: one that keeps the
// IDs of places that have ended then keeps few.
type numbers struct {
	next, used int
	free       []int
}

// number gives an attempt its number. b.mu is held.
func (b *Backend) number(key string) int {
	n := b.numbers[key]
	if n == nil {
		n = &numbers{next: b.spent}
		b.numbers[key] = n
	}
	n.used++
	if last := len(n.free) - 1; last >= 0 {
		number := n.free[last]
		n.free = n.free[:last]
		return number
	}
	n.next++
	return n.next - 1
}

// unnumber takes the number of an attempt back. again is whether it may be used again: no removal of the attempt can still
// be executed, which would remove the next place with that number. b.mu is held.
func (b *Backend) unnumber(key string, number int, again bool) {
	n := b.numbers[key]
	if again {
		n.free = append(n.free, number)
	} else {
		b.spent = max(b.spent, number+1)
	}
	if n.used--; n.used == 0 {
		delete(b.numbers, key)
	}
}

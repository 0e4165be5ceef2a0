package call

// Distinct sends a batch in which no two requests of one key are to be together: together sends those of several keys,
// and returns the ones that it left out; alone sends a single one. Those that were left out are the last, because they may
// take long. It reports whether one was answered.
func Distinct[Q, T any](
	batch []*Member[Q, T], key func(Q) string,
	together func([]*Member[Q, T]) (left []*Member[Q, T], answered bool), alone func(*Member[Q, T]) (answered bool),
) (answered bool) {
	var last []*Member[Q, T]
	for len(batch) > 0 {
		first, rest := distinct(batch, key)
		if len(first) == 1 {
			answered = alone(first[0]) || answered
		} else {
			left, ok := together(first)
			last, answered = append(last, left...), answered || ok
		}
		batch = rest
	}
	for _, m := range last {
		answered = alone(m) || answered
	}
	return answered
}

// distinct returns the first request of each key, and the others.
func distinct[Q, T any](batch []*Member[Q, T], key func(Q) string) (first, rest []*Member[Q, T]) {
	seen := make(map[string]bool, len(batch))
	for _, m := range batch {
		k := key(m.Request)
		if seen[k] {
			rest = append(rest, m)
			continue
		}
		seen[k] = true
		first = append(first, m)
	}
	return first, rest
}

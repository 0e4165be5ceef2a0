package call

// Distinct divides a batch: together are the first requests of each key, and rest are the others, for a later batch.
func Distinct[Q, T any](batch []*Member[Q, T], key func(Q) string) (together, rest []*Member[Q, T]) {
	seen := make(map[string]bool, len(batch))
	for _, m := range batch {
		k := key(m.Request)
		if seen[k] {
			rest = append(rest, m)
			continue
		}
		seen[k] = true
		together = append(together, m)
	}
	return together, rest
}

package backend

// As returns the first value in v's chain of Unwrap methods that is a T, and whether there
// is one. A wrapper of a Backend or a Grant has a method "Unwrap() Backend" or "Unwrap()
// Grant", and implements an optional interface only if it changes what the method does.
func As[T any](v any) (t T, ok bool) {
	for {
		if t, ok = v.(T); ok {
			return t, true
		}
		switch w := v.(type) {
		case interface{ Unwrap() Backend }:
			v = w.Unwrap()
		case interface{ Unwrap() Grant }:
			v = w.Unwrap()
		default:
			return t, false
		}
	}
}

package measure

import (
	"math"
)

// barChart has a bar for each target.
type barChart struct {
	Title, Unit string
	Bars        []bar
}

type bar struct {
	Target, Value string
	Percent       float64 // of the longest bar
	Color         int     // of the palette
}

// bars returns nil if no value is known.
func bars(title, unit string, sums []Summary, value func(Summary) float64) *barChart {
	most := 0.0
	known := false
	for _, s := range sums {
		if v := value(s); !math.IsNaN(v) {
			most, known = max(most, v), true
		}
	}
	if !known {
		return nil
	}
	c := &barChart{Title: title, Unit: unit}
	for i, s := range sums {
		b := bar{Target: s.Target, Value: Number(value(s)), Color: i % len(palette)}
		if v := value(s); most > 0 && !math.IsNaN(v) {
			b.Percent = math.Round(1000*v/most) / 10
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

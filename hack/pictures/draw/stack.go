package draw

// A Layer is a row of boxes of the same width.
type Layer struct {
	Kind  Kind
	Boxes []string
	Below string // beside the arrow to the next layer
}

// Stack draws layers from y on, with arrows from each to the next. It returns where it ends.
func Stack(c *Canvas, y int, layers ...Layer) int {
	const gap = 10
	for i, l := range layers {
		w := (Width - 2*margin - gap*(len(l.Boxes)-1)) / len(l.Boxes)
		high := 0
		for _, b := range l.Boxes {
			high = max(high, boxHeight(w, b))
		}
		for j, b := range l.Boxes {
			c.Box(margin+j*(w+gap), y, w, high, l.Kind, b)
		}
		y += high
		if i == len(layers)-1 {
			break
		}
		down := max(24, textHeight(l.Below, 240, "")+8)
		c.Arrow(Width/2, y, Width/2, y+down, Plain)
		if l.Below != "" {
			c.Text(Width/2+12, y+3, 240, "start", "faint", l.Below)
		}
		y += down
	}
	return y
}

package draw

// A Row is a state of a lock: who holds it and who waits, in order.
type Row struct {
	Heading string
	Cells   []Cell
}

// A Cell is a request, as wide as its share.
type Cell struct {
	Text  string
	Parts int // of the twelve of a row
	Kind  Kind
}

// Strips draws rows from y on. It returns where it ends.
func Strips(c *Canvas, y int, rows ...Row) int {
	const part, gap = 43, 4
	for _, r := range rows {
		y += c.Text(margin, y, Width-2*margin, "start", "", r.Heading) + 4
		x, high := margin, 0
		for _, cell := range r.Cells {
			high = max(high, boxHeight(cell.Parts*part-gap, cell.Text))
		}
		for _, cell := range r.Cells {
			c.Box(x, y, cell.Parts*part-gap, high, cell.Kind, cell.Text)
			x += cell.Parts * part
		}
		y += high + 12
	}
	return y
}

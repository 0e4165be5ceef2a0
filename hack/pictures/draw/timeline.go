package draw

// A Lane is a row of bars of a timeline, with a heading.
type Lane struct {
	Heading string
	Bars    []Bar
}

// A Bar is a time in a lane, from 0 to 100.
type Bar struct {
	From, To int
	Kind     Kind
	Text     string
}

// A Mark is an instant, from 0 to 100, with a line through all lanes. Its text is below the
// lanes and to the right of the line, or above them and to its left.
type Mark struct {
	At    int
	Above bool
	Text  string
}

// Timeline draws lanes and marks from y on. Both are in the order of time. It returns where it ends.
func Timeline(c *Canvas, y int, lanes []Lane, marks []Mark) int {
	at := func(n int) int { return margin + 4 + n*(Width-2*margin-8)/100 }
	var above, below []Mark
	for _, m := range marks {
		if m.Above {
			above = append(above, m)
		} else {
			below = append(below, m)
		}
	}
	var lines []func(top, bottom int)
	// The last mark has the highest text, so no line crosses a text.
	for i := len(above) - 1; i >= 0; i-- {
		m, top := above[i], y
		x := at(m.At)
		y += c.Text(margin, y, x-margin-6, "end", "faint", m.Text) + 4
		lines = append(lines, func(_, bottom int) { c.Line(x, top, x, bottom, "dash") })
	}
	top := 0
	before := c.body.String()
	c.body.Reset()
	y += 4
	for _, l := range lanes {
		c.printf(`<rect class="patch" x="%d" y="%d" width="%d" height="%d"/>`, margin+4, y, width(l.Heading, true), lineHeight)
		y += c.Text(margin+4, y, Width-2*margin-8, "start", "bold", l.Heading) + 2
		if top == 0 {
			top = y // lines of marks below begin at the first bars
		}
		high := 0
		for _, b := range l.Bars {
			high = max(high, boxHeight(at(b.To)-at(b.From), b.Text))
		}
		for _, b := range l.Bars {
			c.Box(at(b.From), y, at(b.To)-at(b.From), high, b.Kind, b.Text)
		}
		y += high + 12
	}
	bottom := y
	// The last mark has the highest text here too.
	for i := len(below) - 1; i >= 0; i-- {
		m := below[i]
		x := at(m.At)
		high := c.Text(x+6, y, Width-margin-x-6, "start", "faint", m.Text)
		end := y + high
		lines = append(lines, func(top, _ int) { c.Line(x, top, x, end, "dash") })
		y = end + 4
	}
	drawn := c.body.String()
	c.body.Reset()
	c.body.WriteString(before)
	for _, l := range lines {
		l(top, bottom)
	}
	c.body.WriteString(drawn)
	return y
}
